"""The programs that use a simulated cluster: each writes, reads, recovers or deletes one ledger, and never gives up.

What a program is told goes to the judge. An error that says that nothing is known is tried again; one that says more is
judged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tallystick.bookkeeper.ledger.client import BookKeeper
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.errors import (
    LedgerClosed,
    LedgerExists,
    LedgerFenced,
    MetadataError,
    NoSuchLedger,
    NotEnoughBookies,
    RecoveryIncomplete,
    TallyError,
    Unauthorized,
    Unavailable,
)
from tallystick.sim.cluster_book import LedgerHistory
from tallystick.sim.cluster_faults import BookPlan
from tallystick.sim.cluster_judge import ClusterJudge

T = TypeVar("T")

AGAIN_S = 0.5
FUTILE = (Unavailable, MetadataError, RecoveryIncomplete, NotEnoughBookies)  # it may go better later


class Shared:
    """One ledger, as the programs that use it know it. ``before`` is another one, whose id it takes over."""

    def __init__(self, plan: BookPlan, judge: ClusterJudge, rng: random.Random, before: Shared | None) -> None:
        self.plan, self.judge, self.random, self.before = plan, judge, rng, before
        self.book: asyncio.Future[LedgerHistory] = asyncio.get_running_loop().create_future()
        self.appends: list[asyncio.Future[EntryId]] = []
        self.is_left: Callable[[], bool] = lambda: False  # nobody writes it any more


async def write(shared: Shared, client: BookKeeper) -> None:
    """Create the ledger, append to it, and end as the plan says; whoever is killed does not come to that."""
    writer = await _create(shared, client)
    book = shared.judge.claimed(shared.plan, writer)
    shared.book.set_result(book)
    try:
        await _append(shared, book, writer)
        if shared.plan.writer_end == "close":
            await _close(shared, book, writer)
        else:  # idle: somebody else ends it
            await asyncio.sleep(10_000)
    except LedgerFenced:
        return
    except NoSuchLedger:
        _must_be_deleted(shared, book)
    except (LedgerClosed, *FUTILE) as error:
        if isinstance(error, LedgerClosed) and not _has_futile_append(shared):
            raise
        if shared.plan.writer_end == "close":
            await _close(shared, book, writer)


def _has_futile_append(shared: Shared) -> bool:
    """Returns whether an append failed by what may go better later: its writer has ended, and refuses further ones."""
    failures = (future.exception() for future in shared.appends if future.done() and not future.cancelled())
    return any(isinstance(failure, FUTILE) for failure in failures)


async def _create(shared: Shared, client: BookKeeper) -> LedgerWriter:
    plan = shared.plan
    ensemble, write_quorum, ack_quorum = plan.shape
    ledger = await _free_id(shared)
    while True:
        try:
            return await client.create_ledger(
                ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest=plan.digest,
                password=plan.password,
                ledger_id=ledger,
                accept_silent_bookies=plan.accepts_silent,
            )
        except LedgerExists:
            assert ledger is not None
            if not shared.judge.books[ledger].deleted:  # it is our own: the response to its create was lost for good
                ledger = None
        except FUTILE:
            pass
        await asyncio.sleep(AGAIN_S)


async def _free_id(shared: Shared) -> LedgerId | None:
    """Returns the id of a deleted ledger that nobody writes any more. Returns None for any new id."""
    before = shared.before
    if before is None:
        return None
    await asyncio.wait([before.book])
    if before.book.cancelled():
        return None
    book = before.book.result()
    while not (book.deleted and before.is_left()):  # noqa: ASYNC110  # as somebody who looks now and then
        await asyncio.sleep(AGAIN_S)
    return book.id


async def _append(shared: Shared, book: LedgerHistory, writer: LedgerWriter) -> None:
    """Append in bursts. Raises what an append raises, and the last entry's future if the plan waits for it."""
    plan, judge, rng = shared.plan, shared.judge, shared.random

    def acked(future: asyncio.Future[EntryId]) -> None:
        if not future.cancelled() and future.exception() is None:
            judge.acknowledged(book, future.result())

    while book.appended < plan.entries:
        for _ in range(min(rng.choice((1, 2, 8)), plan.entries - book.appended)):
            future = writer.append_nowait(book.content(book.appended))
            future.add_done_callback(acked)
            shared.appends.append(future)
            book.appended += 1
        if rng.random() < 0.2:
            await writer.drain()
        else:
            await asyncio.sleep(rng.random() * plan.pause_s)
    if plan.waits:
        await shared.appends[-1]
        if writer.lac != plan.entries - 1:
            judge.fail("P4", f"{plan.entries} entries of ledger {book.id} are acknowledged, the LAC is {writer.lac}")


async def _close(shared: Shared, book: LedgerHistory, writer: LedgerWriter) -> None:
    try:
        await writer.close()
    except TallyError:  # the next recovery finds the end
        return
    shared.judge.reported(book, writer.lac, writer.length)
    await asyncio.wait(shared.appends)  # whose futures all have come to their end, for good or bad (P9)


async def recover(shared: Shared, client: BookKeeper) -> None:
    """Take the ledger over, and read all of it."""
    book = await shared.book
    if book.is_replaced:
        return  # its id would open another one
    try:
        reader = await _again(lambda: client.open_ledger(book.id, password=shared.plan.password, recover=True))
    except NoSuchLedger:
        return _must_be_deleted(shared, book)
    except Unauthorized:
        if book.is_replaced:  # meanwhile
            return
        raise
    if book.is_replaced:  # and what was recovered is, perhaps, the other one
        return
    shared.judge.reported(book, reader.last_entry, reader.length)
    await _read_all(shared, book, reader)


async def follow(shared: Shared, client: BookKeeper) -> None:
    """Read the ledger as it grows, up to its end."""
    book = await shared.book
    first = 0
    while not book.is_replaced:
        try:
            async with await client.open_ledger(book.id, password=shared.plan.password) as reader:
                shared.judge.readable(book, reader.last_entry)
                async for entry in reader.follow(first):
                    if entry.id != first:
                        shared.judge.fail("P5", f"a tail of ledger {book.id} got {entry.id} instead of {first}")
                    shared.judge.read(book, entry)
                    first += 1
                return
        except NoSuchLedger:
            return _must_be_deleted(shared, book)
        except TallyError as error:
            if _is_lost(shared.judge, book, first, error):
                return
        await asyncio.sleep(AGAIN_S)


async def look(shared: Shared, client: BookKeeper) -> None:
    """Open the ledger again and again without fencing it, and read parts of what can be read, until it is closed."""
    book, judge, rng, highest_entry = await shared.book, shared.judge, shared.random, NO_ENTRY
    while not book.is_replaced:
        try:
            async with client.open_ledger(book.id, password=shared.plan.password) as reader:
                last = await reader.refresh()
                judge.readable(book, last)
                if reader.is_closed and last < highest_entry and not (book.may_lose or book.is_replaced):
                    judge.fail("P2", f"a reader saw entry {highest_entry} of ledger {book.id}, which ends at {last}")
                highest_entry = max(highest_entry, last)
                if last >= 0:
                    first = rng.randint(0, last)
                    await _read_part(shared, book, reader, first, rng.randint(first, last))
                if reader.is_closed:
                    return
        except NoSuchLedger:
            return _must_be_deleted(shared, book)
        except TallyError as error:
            if _is_lost(judge, book, highest_entry, error):
                return
        await asyncio.sleep(AGAIN_S * rng.random())


async def _read_part(shared: Shared, book: LedgerHistory, reader: LedgerReader, first: EntryId, last: EntryId) -> None:
    """Read a part, and check that every entry of it comes, in order, and no other."""
    async for entry in reader.read(first, last):
        if entry.id != first:
            shared.judge.fail("P5", f"a reader of ledger {book.id} got {entry.id} instead of {first}")
        shared.judge.read(book, entry)
        first += 1
    if first <= last:
        shared.judge.fail("P8", f"a reader of ledger {book.id} got nothing from {first} to {last}")


async def delete(shared: Shared, client: BookKeeper) -> None:
    """Delete the ledger: once it is closed, or at a time of the plan, whatever is done with it then."""
    book, plan = await shared.book, shared.plan
    if plan.deleted == "closed":
        while not book.metadata.is_closed:  # noqa: ASYNC110  # as somebody who looks now and then
            await asyncio.sleep(AGAIN_S)
    else:
        await asyncio.sleep(shared.random.random() * 2)
    try:
        await _again(lambda: _delete(book, client))
    except NoSuchLedger:
        _must_be_deleted(shared, book)


async def _delete(book: LedgerHistory, client: BookKeeper) -> None:
    """Try once to delete the ledger. Once all bookies refuse writes, nothing new is acknowledged."""
    fragments = book.metadata.fragments
    await client.delete_ledger(book.id)
    if book.all_refuse and book.metadata.fragments == fragments and not book.damaged:
        book.refused_from = book.appended


async def _read_all(shared: Shared, book: LedgerHistory, reader: LedgerReader) -> None:
    judge, first = shared.judge, 0
    while first <= reader.last_entry:
        try:
            async for entry in reader.read(first, reader.last_entry):
                judge.read(book, entry)
                first = entry.id + 1
        except TallyError as error:
            if _is_lost(judge, book, first, error):
                return
            await asyncio.sleep(AGAIN_S)


def _is_lost(judge: ClusterJudge, book: LedgerHistory, entry: EntryId, error: TallyError) -> bool:
    """Returns whether an entry may be missing because its ledger was deleted; else it must be read at last."""
    if not book.deleted and not isinstance(error, FUTILE):
        judge.fail("P8", f"entry {entry} of ledger {book.id} cannot be read: {error!r}")
    return book.deleted


async def _again(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except FUTILE:
            await asyncio.sleep(AGAIN_S)


def _must_be_deleted(shared: Shared, book: LedgerHistory) -> None:
    if not book.deleted:
        shared.judge.fail("P8", f"ledger {book.id} is gone, and nobody deleted it")
