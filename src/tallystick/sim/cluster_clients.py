"""The programs that use a simulated cluster: each reads, recovers or deletes one ledger, and never gives up.

What a program is told goes to the judge. An error that says that nothing is known is tried again; one that says more is
judged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId
from tallystick.errors import (
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
        self.is_gone: Callable[[BookieId], bool] = lambda bookie: False  # it starts no more
        self.followed = NO_ENTRY  # who follows it has it up to here
        self.one_more = asyncio.Event()  # an idle writer is to append
        self.last_appended: EntryId | None = None  # that entry, once it is confirmed


async def recover(shared: Shared, client: BookKeeper) -> None:
    """Take the ledger over, and read all of it."""
    book = await shared.book
    if book.is_replaced:
        return  # its id would open another one
    try:
        reader = await _again(lambda: client.open_ledger(book.id, password=shared.plan.password, recover=True))
    except NoSuchLedger:
        return must_be_deleted(shared, book)
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
                    shared.judge.readable(book, reader.last_entry)
                    shared.followed, first = first, first + 1
                shared.judge.followed(book, first)
                return
        except NoSuchLedger:
            return must_be_deleted(shared, book)
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
            return must_be_deleted(shared, book)
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
        must_be_deleted(shared, book)


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


def must_be_deleted(shared: Shared, book: LedgerHistory) -> None:
    if not book.deleted:
        shared.judge.fail("P8", f"ledger {book.id} is gone, and nobody deleted it")
