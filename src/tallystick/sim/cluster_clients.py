"""The programs that use a simulated cluster: they write, follow, recover and delete one ledger, and never give up.

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
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import (
    LedgerFenced,
    MetadataError,
    NoSuchLedger,
    NotEnoughBookies,
    RecoveryIncomplete,
    TallyError,
    Unavailable,
)
from tallystick.sim.cluster_faults import BookPlan
from tallystick.sim.cluster_judge import Judge, content

T = TypeVar("T")

AGAIN_S = 0.5
FUTILE = (Unavailable, MetadataError, RecoveryIncomplete, NotEnoughBookies)  # it may go better later


class Shared:
    """One ledger, as the programs that use it know it."""

    def __init__(self, plan: BookPlan, judge: Judge, rng: random.Random) -> None:
        self.plan, self.judge, self.random = plan, judge, rng
        self.ledger: asyncio.Future[LedgerId] = asyncio.get_running_loop().create_future()
        self.appends: list[asyncio.Future[EntryId]] = []


async def write(shared: Shared, client: BookKeeper) -> None:
    """Create the ledger, append to it, and end as the plan says; whoever is killed does not come to that."""
    writer = await _create(shared, client)
    shared.ledger.set_result(writer.id)
    try:
        await _append(shared, writer)
        if shared.plan.writer_end == "close":
            await _close(shared, writer)
        else:  # idle: somebody else ends it
            await asyncio.sleep(10_000)
    except LedgerFenced:
        return
    except NoSuchLedger:
        _must_be_deleted(shared, writer.id)
    except FUTILE:
        if shared.plan.writer_end == "close":
            await _close(shared, writer)


async def _create(shared: Shared, client: BookKeeper) -> LedgerWriter:
    plan = shared.plan
    ensemble, write_quorum, ack_quorum = plan.shape
    while True:
        try:
            writer = await client.create_ledger(
                ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum, digest=plan.digest, password=plan.password
            )
        except FUTILE:
            await asyncio.sleep(AGAIN_S)
            continue
        shared.judge.created(plan, writer)
        return writer


async def _append(shared: Shared, writer: LedgerWriter) -> None:
    """In bursts; raises what an append raises, and what the last entry's future does, if the plan waits for it."""
    plan, judge, rng, entry = shared.plan, shared.judge, shared.random, 0

    def acked(future: asyncio.Future[EntryId]) -> None:
        if not future.cancelled() and future.exception() is None:
            judge.acknowledged(writer.id, future.result())

    while entry < plan.entries:
        for _ in range(min(rng.choice((1, 2, 8)), plan.entries - entry)):
            future = writer.append_nowait(content(judge.seed, writer.id, entry, plan.largest))
            future.add_done_callback(acked)
            shared.appends.append(future)
            entry += 1
        if rng.random() < 0.2:
            await writer.drain()
        else:
            await asyncio.sleep(rng.random() * plan.pause_s)
    if plan.waits:
        await shared.appends[-1]
        if writer.lac != plan.entries - 1:
            judge.fail(
                "P4", f"{plan.entries} entries of ledger {writer.id} are acknowledged, and the LAC is {writer.lac}"
            )


async def _close(shared: Shared, writer: LedgerWriter) -> None:
    try:
        await writer.close()
    except TallyError:  # the next recovery finds the end
        return
    shared.judge.reported(writer.id, writer.lac, writer.length)
    await asyncio.wait(shared.appends)  # whose futures all have come to their end, for good or bad (P9)


async def recover(shared: Shared, client: BookKeeper) -> None:
    """Take the ledger over, and read all of it."""
    ledger = await shared.ledger
    try:
        reader = await _again(lambda: client.open_ledger(ledger, password=shared.plan.password, recover=True))
    except NoSuchLedger:
        return _must_be_deleted(shared, ledger)
    shared.judge.reported(ledger, reader.last_entry, reader.length)
    await _read_all(shared, reader)


async def follow(shared: Shared, client: BookKeeper) -> None:
    """Read the ledger as it grows, up to its end."""
    ledger = await shared.ledger
    first = 0
    while True:
        try:
            async with await client.open_ledger(ledger, password=shared.plan.password) as reader:
                shared.judge.readable(ledger, reader.last_entry)
                async for entry in reader.tail(first):
                    if entry.id != first:
                        shared.judge.fail("P5", f"a tail of ledger {ledger} got {entry.id} instead of {first}")
                    shared.judge.read(ledger, entry)
                    first += 1
                return
        except NoSuchLedger:
            return _must_be_deleted(shared, ledger)
        except TallyError as error:
            if _is_lost(shared.judge, ledger, first, error):
                return
        await asyncio.sleep(AGAIN_S)


async def delete(shared: Shared, client: BookKeeper) -> None:
    """Delete the ledger once it is closed."""
    ledger = await shared.ledger
    while not shared.judge.books[ledger].metadata.is_closed:  # noqa: ASYNC110  # as somebody who looks now and then
        await asyncio.sleep(AGAIN_S)
    try:
        await _again(lambda: client.delete_ledger(ledger))
    except NoSuchLedger:
        _must_be_deleted(shared, ledger)


async def _read_all(shared: Shared, reader: LedgerReader) -> None:
    judge, first = shared.judge, 0
    while first <= reader.last_entry:
        try:
            async for entry in reader.read(first, reader.last_entry):
                judge.read(reader.id, entry)
                first = entry.id + 1
        except TallyError as error:
            if _is_lost(judge, reader.id, first, error):
                return
            await asyncio.sleep(AGAIN_S)


def _is_lost(judge: Judge, ledger: LedgerId, entry: EntryId, error: TallyError) -> bool:
    """Whether an entry was rightly not read because its ledger was deleted; else it must be there, sooner or later."""
    deleted = judge.books[ledger].deleted
    if not deleted and not isinstance(error, FUTILE):
        judge.fail("P8", f"entry {entry} of ledger {ledger} cannot be read: {error!r}")
    return deleted


async def _again(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except FUTILE:
            await asyncio.sleep(AGAIN_S)


def _must_be_deleted(shared: Shared, ledger: LedgerId) -> None:
    if not shared.judge.books[ledger].deleted:
        shared.judge.fail("P8", f"ledger {ledger} is gone, and nobody deleted it")
