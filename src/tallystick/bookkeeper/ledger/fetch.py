"""Reads of ranges of entries from the bookies that hold them (Q4, Q17). No metadata service is needed here.

::

    ranges ──▶ pieces of consecutive entries, several in flight, delivered in order, as many bytes as the read window
    piece, not striped   one batch read from one replica, the one of the piece before; what its response leaves out is
                         asked for again
    piece, striped       single reads, all sent at once, each to a replica of its own write set (see read_shares.py)

Each entry's digest is checked. A replica that fails, answers "no", sends bad bytes or is silent for too long is
followed by the next one of the write set, until one succeeds or all have failed; one that was silent or failed is asked
last by all reads of the client for a while (see slow_bookies.py). "No such entry" is only reported when every replica
said it; any other failure wins over it (``PendingReadOp`` and ``BatchedReadOp`` of the original).

Batch answers keep to the window whatever the entries' sizes. Single reads have no size limit on the wire: theirs is
guessed from the entries before, and their number is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple, NoReturn

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.ranges import Range, loss_of
from tallystick.bookkeeper.ledger.read_failures import about, check_code, failure_of_all
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.read_shares import slots_of_piece
from tallystick.bookkeeper.ledger.slow_bookies import NEVER
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.lost_runs import is_lost, next_lost
from tallystick.bookkeeper.wire.values import BookieId, DigestType, EntryId, LedgerId
from tallystick.codec.frames import Buffer
from tallystick.codec.reads import EntryRun, SpreadEntries, open_entries, open_together
from tallystick.errors import BookieUnavailable, DigestMismatch, NoSuchEntry, TallyError

PIECE_BYTES = 1024 * 1024
MAX_PIECES = 8
FIRST_PIECE_ENTRIES = 16  # their size tells how many the next piece may have, and
FIRST_PIECE_BYTES = 256 * 1024  # as many, if that is more, by the mean size of entries of a closed ledger
MAX_GROWTH = 8
MAX_PIECE_ENTRIES = 65_536
MAX_SINGLE_READS = 512  # of one piece, and
MAX_STRIPED_PIECES = 2  # so many of those at a time


Opener = Callable[[Sequence[Buffer], LedgerId, EntryId, Digest], EntryRun]  # see open_entries


def open_as_objects(entries: Sequence[Buffer], ledger: LedgerId, first: EntryId, digest: Digest) -> EntryRun:
    """An ``Opener`` for who wants each payload."""
    return open_entries(entries, ledger, first, digest.compute_all, digest.size)


def open_without_objects(entries: Sequence[Buffer], ledger: LedgerId, first: EntryId, digest: Digest) -> EntryRun:
    """An ``Opener`` for who wants payloads by columns."""
    return open_together(entries, ledger, first, digest.compute_all, digest.size)


async def fetch_runs(
    client: BookieClient, ranges: Iterable[Range], *, opener: Opener = open_as_objects
) -> AsyncGenerator[EntryRun, None]:
    """Read the entries of all ranges, in order and checked, as runs of consecutive entries.

    ``opener`` checks what came: it returns the good entries from the front.

    Raises EntryLost for one that was given up; when an entry has no good replica NoSuchEntry if all of them said so,
    else DigestMismatch, Unauthorized, Unavailable or one of its kinds. Close the iterator when leaving early.
    """
    reader = _RangeReader(client, opener)
    pieces = reader.pieces(ranges)
    running: deque[asyncio.Task[_Fetched]] = deque()
    try:
        while True:
            while len(running) < reader.depth and (piece := next(pieces, None)) is not None:
                running.append(asyncio.create_task(reader.fetch(piece)))
            if not running:
                return
            fetched = await running[0]
            for run in fetched.runs:
                yield run
            if fetched.failure is not None:
                raise fetched.failure
            running.popleft()  # only now: what is not yet taken counts as in flight
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def read_elsewhere(
    client: BookieClient, piece: Range, bookie: BookieId, reads: ReadRun, asked_at: float
) -> EntryRun:
    """Read a piece of one entry that this bookie was asked for at ``asked_at``: it failed, or is silent for too long.

    Raises as ``fetch_runs`` does.
    """
    return await _RangeReader(client, open_as_objects).elsewhere(piece, bookie, reads, asked_at)


class _Fetched(NamedTuple):
    """The entries of a piece: all of them, or those before the first one that has no good copy, and why it has none."""

    runs: list[EntryRun]
    failure: TallyError | None = None


class _RangeReader:
    """One read: how large its pieces are, and which bookie it goes on at."""

    def __init__(self, client: BookieClient, opener: Opener) -> None:
        self._opener = opener
        self._client, self._settings, self._slow, self._counts = client, client.settings, client.slow, client.counts
        self._piece_bytes = max(1, min(PIECE_BYTES, client.settings.read_window_bytes // 2))
        self._count = FIRST_PIECE_ENTRIES
        self._has_learnt = False
        self.depth = 1  # pieces in flight; more when the size of an entry is known
        # Batches go on at one replica: they arrive one after another, each opened while the next is on its way.
        self._reading_from: BookieId | None = None
        self._digests: dict[tuple[DigestType, bytes], Digest] = {}

    def pieces(self, ranges: Iterable[Range]) -> Iterator[Range]:
        for whole in ranges:
            first = whole.first
            if not self._has_learnt and whole.mean_bytes and self._reads_batches(whole):
                self._count = max(self._count, min(FIRST_PIECE_BYTES, self._piece_bytes) // (64 + whole.mean_bytes))
            while first <= whole.last:
                limit = MAX_SINGLE_READS if whole.striping.striped else MAX_PIECE_ENTRIES
                last = min(whole.last, first + min(self._count, limit) - 1)
                if whole.lost and (run := next_lost(whole.lost, first)) is not None:
                    last = min(last, max(run[0] - 1, first))
                yield whole._replace(first=first, last=last)
                first = last + 1

    def _reads_batches(self, piece: Range) -> bool:
        """Whether responses keep to their limit of bytes, whatever the entries' sizes."""
        allowed, now = self._client.batch_reads.allowed, self._client.now()
        return not piece.striping.striped and all(allowed(bookie, now) for bookie in piece.bookies)

    async def fetch(self, piece: Range) -> _Fetched:
        """Fetch a piece. Raises what its first entry failed with."""
        if piece.lost and is_lost(piece.lost, piece.first):
            raise loss_of(piece)
        runs: list[EntryRun] = []
        position, began_at = piece.first, self._client.now()
        try:
            while position <= piece.last:
                rest = piece._replace(first=position)
                if piece.striping.striped:
                    await self._striped(rest, runs)
                else:
                    runs.append(await self._unstriped(rest))
                position = runs[-1].last + 1
        except TallyError as error:
            if not runs:
                raise
            return _Fetched(runs, error)
        self._learn(runs, began_at, is_striped=piece.striping.striped)
        return _Fetched(runs)

    async def elsewhere(self, piece: Range, first_bookie: BookieId, reads: ReadRun, began_at: float) -> EntryRun:
        """Read a piece of one entry, as ``read_elsewhere`` does."""
        run = await self._elsewhere(piece, first_bookie, reads)
        self._learn([run], began_at, is_striped=piece.striping.striped)
        return run

    def _learn(self, runs: list[EntryRun], began_at: float, *, is_striped: bool) -> None:
        self._counts.read_latencies.took(self._client.now() - began_at)
        self._has_learnt = True
        entries, payload_bytes = sum(map(len, runs)), sum(run.payload_bytes for run in runs)
        self._counts.reads += entries
        self._counts.read_bytes += payload_bytes
        size = 64 * entries + payload_bytes
        fitting = (
            self._piece_bytes * entries * 7 // (size * 8)
        )  # sizes vary: aim a little lower than the response's limit
        self._count = max(1, min(fitting, self._count * MAX_GROWTH, MAX_PIECE_ENTRIES))
        most = MAX_STRIPED_PIECES if is_striped else MAX_PIECES
        self.depth = max(1, min(self._settings.read_window_bytes // self._piece_bytes, most))

    # Whole entries on every bookie

    async def _unstriped(self, piece: Range) -> EntryRun:
        """Read at least the first entry of the piece."""
        return await self._first_good(
            piece, self._order(piece, piece.first), lambda bookie: self._ask_batch(piece, bookie)
        )

    async def _ask_batch(self, piece: Range, bookie: BookieId) -> EntryRun:
        batch_reads = self._client.batch_reads
        if piece.first == piece.last or not batch_reads.allowed(bookie, self._client.now()):
            return await self._ask_singles(piece, bookie)
        connection = self._client.connection(bookie, piece.ledger)
        try:
            response = await self._client.batch_read(
                bookie,
                piece.ledger,
                piece.first,
                max_count=piece.last - piece.first + 1,
                max_bytes=min(self._piece_bytes, self._settings.max_frame_bytes),
            )
        except BookieUnavailable:
            # An old bookie closes the connection on a batch read. One that then answers a single read may be one.
            run = await self._ask_singles(piece._replace(last=piece.first), bookie)
            batch_reads.closed(bookie, connection, self._client.now())
            return run
        batch_reads.answered(bookie)
        check_code(response.code, piece, bookie)
        run = self._open(piece, response.entries[: piece.last - piece.first + 1])
        if not len(run):
            raise DigestMismatch("it answered with bytes that do not match their digest", bookie=bookie, **about(piece))
        self._reading_from = bookie
        return run

    async def _ask_singles(self, piece: Range, bookie: BookieId) -> EntryRun:
        """From the front of the piece as many as this bookie gives without a failure; raises the first one's."""
        most = MAX_SINGLE_READS if self._has_learnt else FIRST_PIECE_ENTRIES
        entries = range(piece.first, min(piece.last, piece.first + most - 1) + 1)
        reads = self._client.read_run(bookie, piece.ledger, entries)
        try:
            await reads.done
        finally:
            reads.close()
        run = self._open(piece, _leading([reads.stored_entries.get(entry) for entry in entries]))
        return run if len(run) else self._raise_failure(piece, bookie, reads)

    # Each entry on its write set

    async def _striped(self, piece: Range, runs: list[EntryRun]) -> None:
        """Add at least one entry; up to as many as may be in flight, all asked for at once, each at its first
        replica."""
        entries = range(piece.first, min(piece.last, piece.first + MAX_SINGLE_READS - 1) + 1)
        shares = self._shares(piece, entries)
        reads_by_bookie = {
            bookie: self._client.read_run(bookie, piece.ledger, share) for bookie, share in shares.items()
        }
        at = 0
        try:
            await asyncio.wait(
                [reads.done for reads in reads_by_bookie.values()], timeout=self._settings.speculative_read_s
            )
            data = _in_order(entries, reads_by_bookie.values())
            while at < len(entries):
                rest = piece._replace(first=piece.first + at)
                run = self._open(rest, _leading(data[at:] if at else data))
                if not len(run):  # this one needs another replica; those behind it may be good again
                    bookie = next(name for name, share in shares.items() if rest.first in share)
                    run = await self._elsewhere(rest._replace(last=rest.first), bookie, reads_by_bookie[bookie])
                runs.append(run)
                at += len(run)
        finally:
            for reads in reads_by_bookie.values():
                reads.close()

    def _shares(self, piece: Range, entries: range) -> dict[BookieId, list[EntryId]]:
        size = len(piece.bookies)
        slots = slots_of_piece(size, piece.write_quorum, piece.ledger + next(self._client.striped_pieces))
        shares: dict[BookieId, list[EntryId]] = {}
        for alike in [entries[step::size] for step in range(min(size, len(entries)))]:  # of one write set
            bookie = piece.bookies[slots[alike[0] % size]]
            if self._slow and self._slow.since(bookie) != NEVER:
                bookie = self._order(piece, alike[0])[0]
            shares.setdefault(bookie, []).extend(alike)
        for share in shares.values():
            share.sort()
        return shares

    async def _elsewhere(self, piece: Range, first_bookie: BookieId, reads: ReadRun) -> EntryRun:
        """Read a piece of one entry, whose first replica failed or has not answered yet."""

        async def ask(bookie: BookieId) -> EntryRun:
            if bookie != first_bookie:
                return await self._ask_singles(piece, bookie)
            if not has_responded():
                await asyncio.wait([reads.done])
            run = self._open(piece, _leading([reads.stored_entries.get(piece.first)]))
            return run if len(run) else self._raise_failure(piece, bookie, reads)

        def has_responded() -> bool:
            return any(piece.first in outcomes for outcomes in (reads.stored_entries, reads.codes, reads.errors))

        silent = not has_responded()
        if silent:
            self._slow.add(first_bookie)
        others = [bookie for bookie in self._order(piece, piece.first) if bookie != first_bookie]
        return await self._first_good(piece, [first_bookie, *others], ask, at_once=silent)

    # One replica after another

    def _order(self, piece: Range, entry: EntryId) -> list[BookieId]:
        """Return the entry's write set: the bookie of the batch before comes first, slow ones last."""
        if self._settings.sticky_reads and not piece.striping.striped:
            entry = piece.ledger  # any number that all reads of the ledger have in common
        bookies = [piece.bookies[slot] for slot in piece.striping.slots(entry)]
        if self._reading_from is None and not self._slow:
            return bookies
        return sorted(bookies, key=lambda bookie: (self._slow.since(bookie), bookie != self._reading_from))

    async def _first_good(
        self,
        piece: Range,
        order: Sequence[BookieId],
        ask: Callable[[BookieId], Awaitable[EntryRun]],
        at_once: bool = False,
    ) -> EntryRun:
        """Ask until one succeeds: the next when one fails, or after a silence (at once, if there was one already)."""
        candidates = deque(order)
        attempts: dict[asyncio.Future[EntryRun], BookieId] = {}
        failures: dict[BookieId, TallyError] = {}
        try:
            while candidates or attempts:
                if candidates:
                    bookie = candidates.popleft()
                    attempts[asyncio.ensure_future(ask(bookie))] = bookie
                patience = (0 if at_once else self._settings.speculative_read_s) if candidates else None
                at_once = False
                done, _ = await asyncio.wait(attempts, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    self._counts.speculative_reads += 1
                    for bookie in attempts.values():
                        self._slow.add(bookie)
                for task in done:
                    bookie = attempts.pop(task)
                    error = task.exception()
                    if error is None:
                        return task.result()
                    if not isinstance(error, TallyError):
                        raise error
                    failures[bookie] = error
                    self._counts.read_failed(error)
                    if not isinstance(error, NoSuchEntry):
                        self._slow.add(bookie)
        finally:
            for task in attempts:
                task.cancel()
        raise failure_of_all(failures, piece)

    # Responses

    def _open(self, piece: Range, entries: Sequence[Buffer]) -> EntryRun:
        digest = self._digests.get((piece.digest_type, piece.password))
        if digest is None:
            digest = Digest.of(piece.digest_type, piece.password)
            self._digests[piece.digest_type, piece.password] = digest
        return self._opener(entries, piece.ledger, piece.first, digest)

    def _raise_failure(self, piece: Range, bookie: BookieId, reads: ReadRun) -> NoReturn:
        """Raise why this replica did not give the piece's first entry."""
        if piece.first in reads.errors:
            raise reads.errors[piece.first]
        check_code(reads.codes.get(piece.first, Code.OK), piece, bookie)
        raise DigestMismatch("it answered with bytes that do not match their digest", bookie=bookie, **about(piece))


def _in_order(entries: range, reads: Collection[ReadRun]) -> Sequence[Buffer | None]:
    """Return what has come for each of the entries."""
    spread = SpreadEntries.of(entries, [part for each in reads for part in each.parts])
    if spread is not None:
        return spread
    stored_entries: dict[EntryId, Buffer] = {}
    for each in reads:
        stored_entries.update(each.stored_entries)
    return [stored_entries.get(entry) for entry in entries]


def _leading(data: Sequence[Buffer | None]) -> Sequence[Buffer]:
    """Return the buffers before the first gap."""
    if isinstance(data, SpreadEntries):
        return data
    return [part for part in takewhile(lambda part: part is not None, data) if part is not None]
