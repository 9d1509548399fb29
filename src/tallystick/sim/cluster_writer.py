"""The program that writes a ledger of a simulated cluster: by ids of its own or given ones, deferred or not."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from tallystick.bookkeeper.ledger.given_ids import HELD_BYTES
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import (
    EntriesMissing,
    EntryExists,
    LedgerClosed,
    LedgerError,
    LedgerExists,
    LedgerFenced,
    MetadataError,
    NoSuchLedger,
    TallyError,
    Unavailable,
)
from tallystick.sim.cluster_book import LedgerHistory
from tallystick.sim.cluster_budgets import BUDGETS, HELD
from tallystick.sim.cluster_clients import AGAIN_S, FUTILE, Shared, must_be_deleted

FORCES = 20  # of who wants all entries to be durable: a bookie may be gone for good
FORCING_S = 0.05  # a force takes, about, where nothing is wrong
BATCHING = 0.3  # of the writers that may append batches do
FENCED_S = 0.5  # in which a writer that is fenced might still say something


async def write(shared: Shared, client: BookKeeper) -> None:
    """Create the ledger, append to it, and end as the plan says; whoever is killed does not come to that."""
    writer = await _create(shared, client)
    book = shared.judge.claimed(shared.plan, writer)
    shared.book.set_result(book)
    appends = _Appends(shared, book, writer)
    try:
        await appends.all()
        if shared.plan.writer_end == "close":
            await _close(shared, book, writer)
        else:  # idle: somebody else ends it
            await shared.one_more.wait()
            await appends.one_more()
            await asyncio.sleep(10_000)
    except LedgerFenced:
        book.is_fenced = True
        await asyncio.sleep(FENCED_S)
    except NoSuchLedger:
        must_be_deleted(shared, book)
    except (LedgerError, *FUTILE) as error:
        if not _is_allowed(shared, error):
            raise
        if shared.plan.writer_end == "close":
            await _close(shared, book, writer)


def _is_allowed(shared: Shared, error: TallyError) -> bool:
    """Returns whether a writer may end so."""
    if isinstance(error, LedgerClosed):  # an append failed before by what may go better later
        failures = (future.exception() for future in shared.appends if future.done() and not future.cancelled())
        return any(isinstance(failure, FUTILE) for failure in failures)
    return isinstance(error, FUTILE) or (shared.plan.defers and type(error) is LedgerError)


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
                entry_ids="given" if plan.gives_ids else "counted",
                deferred_sync=plan.defers,
            )
        except LedgerExists as error:
            assert ledger is not None
            # It is our own, and the response to its create was lost for good; or a bookie may hold it that starts no
            # more and says nothing: it would be waited for without an end.
            if not shared.judge.books[ledger].deleted or any(map(shared.is_gone, error.fields.get("bookies", ()))):
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


class _Appends:
    """The appends of one writer. ``all`` raises what an append raises, and the newest one if the plan waits for it."""

    def __init__(self, shared: Shared, book: LedgerHistory, writer: LedgerWriter) -> None:
        self._shared, self._book, self._writer, self._random = shared, book, writer, shared.random
        self._order = deque(_order(shared.random, shared.plan.entries, gives_ids=shared.plan.gives_ids))
        self._futures: dict[EntryId, asyncio.Future[EntryId]] = {}
        # Draws of its own: a ledger whose writer appends no batch has the same life as without this.
        self._batching = random.Random(f"{shared.judge.seed} batches of {book.id}")
        self._may_batch = not shared.plan.gives_ids and self._batching.random() < BATCHING

    async def all(self) -> None:
        """Append in bursts, of which some are batches."""
        plan, rng = self._shared.plan, self._random
        while self._order:
            if self._may_batch and self._batching.random() < 0.5:
                await self._append_batch()
            else:
                self._append_burst()
            if plan.forces and rng.random() < 0.3:
                await asyncio.gather(self._force(), self._go_on())
            elif rng.random() < 0.2:
                await self._writer.drain()
            else:
                await asyncio.sleep(rng.random() * plan.pause_s)
            self._check_length()
        if plan.waits:
            await self._end()

    def _append_burst(self) -> None:
        for _ in range(min(self._random.choice((1, 2, 8)), len(self._order))):
            if not self._append_next():
                break

    async def _append_batch(self) -> None:
        """Begin to append a batch; what comes of it is for later."""
        await self._writer.drain()  # so that it need not wait for room, and has the ids that come next
        book = self._book
        entries = [self._order.popleft() for _ in range(min(self._batching.choice((2, 8, 30)), len(self._order)))]
        batch = asyncio.create_task(self._batch([book.content(entry) for entry in entries]))
        batch.add_done_callback(lambda task: task.cancelled() or task.exception())  # who waits for it asks again
        self._futures.update(dict.fromkeys(entries, batch))
        self._shared.appends.append(batch)
        book.appended += len(entries)
        book.batched = entries[-1]
        await asyncio.sleep(0)

    async def _batch(self, contents: list[bytes]) -> EntryId:
        ids = await self._writer.append_batch(contents)
        for entry in ids:
            self._shared.judge.acknowledged(self._book, entry)
        return ids[-1]

    async def _go_on(self) -> None:
        """Append while a force is under way, which is not to cover that."""
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.random() * FORCING_S)
            self._append_burst()

    async def one_more(self) -> None:
        """Append once more, and say which entry that was; not behind a gap."""
        if len(self._futures) == self._book.appended:
            entry = self._book.appended
            self._append(entry)
            await self._end()
            if self._writer.lac == entry:
                self._shared.last_appended = entry

    async def _end(self) -> None:
        """Wait for what is not behind a gap, and force it where that is needed."""
        book, writer = self._book, self._writer
        last = book.appended - 1
        if last in self._futures:
            await self._futures[last]
        for _ in range(FORCES if self._shared.plan.defers else 0):
            if writer.lac == last:
                break
            await self._force()
            await asyncio.sleep(AGAIN_S)
        if writer.lac != last and not self._shared.plan.defers:
            self._shared.judge.fail("P4", f"{last} of ledger {book.id} is acknowledged, the LAC is {writer.lac}")

    async def _force(self) -> None:
        try:
            lac = await self._writer.force()
        except (Unavailable, MetadataError):  # perhaps the next one
            return
        self._shared.judge.forced(self._book, lac)

    def _append_next(self) -> bool:
        """Append the next entry of the order. Returns False if nothing can be appended: a gap stays."""
        entry = self._order.popleft()
        try:
            self._append(entry)
        except EntriesMissing as error:
            missing = error.missing
            if missing is None or missing not in self._order:
                self._order.clear()
                return False
            self._order.remove(missing)
            self._order.extendleft((entry, missing))
        return True

    def _append(self, entry: EntryId) -> None:
        book, gives_ids = self._book, self._shared.plan.gives_ids
        content = book.content(entry)
        future = self._writer.append_nowait(content, entry) if gives_ids else self._writer.append_nowait(content)
        future.add_done_callback(self._acked)
        self._futures[entry] = future
        self._shared.appends.append(future)
        while book.appended in self._futures:
            book.appended += 1
        self._check_held()
        if gives_ids and self._random.random() < 0.1:
            self._append_again(entry)

    def _check_length(self) -> None:
        """Check that the writer knows how long its ledger is; the LAC may be in the middle of a batch."""
        book, writer = self._book, self._writer
        if writer.length != (length := book.length(writer.lac)):
            self._shared.judge.fail(
                "P3", f"up to {writer.lac} ledger {book.id} has {length} bytes, not {writer.length}"
            )

    def _check_held(self) -> None:
        """Check that no more waits behind the first gap than may."""
        book, most = self._book, BUDGETS[HELD]
        held_bytes = sum(len(book.content(entry)) + HELD_BYTES for entry in self._futures if entry > book.appended)
        if held_bytes > most:
            self._shared.judge.fail("budget", f"{HELD}: {held_bytes:,}, and {most:,} are allowed")

    def _append_again(self, entry: EntryId) -> None:
        try:
            self._writer.append_nowait(b"another", entry)
        except EntryExists:
            return
        self._shared.judge.fail("P4", f"entry {entry} of ledger {self._book.id} was taken twice")

    def _acked(self, future: asyncio.Future[EntryId]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._shared.judge.acknowledged(self._book, future.result())


def _order(rng: random.Random, count: int, *, gives_ids: bool) -> list[EntryId]:
    """Returns the ids in the order in which they are appended: given ones in disorder, and sometimes one is missing."""
    order = list(range(count))
    if gives_ids:
        reach = rng.choice((2, 5, 40))
        order.sort(key=lambda entry: entry + rng.random() * reach)
        if rng.random() < 0.2:
            order.remove(rng.randrange(count))
    return order


async def _close(shared: Shared, book: LedgerHistory, writer: LedgerWriter) -> None:
    try:
        await writer.close()
    except TallyError:  # the next recovery finds the end
        return
    shared.judge.reported(book, writer.lac, writer.length)
    if shared.appends:
        await asyncio.wait(shared.appends)  # which all have come to their end, for good or bad (P9)
