"""Single reads of one ledger from one bookie, over one connection: those of a turn of the loop are sent together.

They leave in ascending order, as a bookie reads ascending entries in one go, and what one socket read answers is
checked in one call. They have one lane while any is outstanding, one timer, and no deadline each.

A read that went well resolves its future with the entry's fields. Any other resolves it with a ``ReadRun`` of this one
entry, which has the refusal, the failure or the bad bytes; that of a read without a response for too long is still
open, and hears of what comes later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tallystick.bookkeeper.ledger.counts import ClientCounts
from tallystick.bookkeeper.ledger.lanes import Lane
from tallystick.bookkeeper.ledger.link import BookieLink
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.frames import Buffer
from tallystick.codec.reads import open_singles
from tallystick.errors import TallyError
from tallystick.runtime.clock import Clock

EntryFields = tuple[bytes, int, EntryId]  # payload, the ledger's length up to its end, LAC


class SingleRead(asyncio.Future[EntryFields | ReadRun]):
    """One read that was asked for at ``asked_at``. Cancelling it gives it up."""

    __slots__ = ("asked_at",)

    asked_at: float


class ReadChannel:
    """See the module. It holds nothing of a connection while nothing is outstanding."""

    def __init__(
        self,
        connect: Callable[[], BookieLink],
        ledger: LedgerId,
        digest: Digest,
        counts: ClientCounts,
        clock: Clock,
        settings: ClientSettings,
    ) -> None:
        """``connect`` returns the living connection, a new one, or one that is about to fail."""
        self._connect, self._ledger, self._digest = connect, ledger, digest
        self._counts, self._clock, self._settings = counts, clock, settings
        self._loop = asyncio.get_running_loop()
        self._link: BookieLink | None = None
        self._lane: Lane[Owner] | None = None
        self._unsent: list[EntryId] = []
        self._turn_at = 0.0  # when the first of those was asked for
        self._reads: dict[EntryId, SingleRead] = {}  # without a response, oldest first
        self._late: dict[EntryId, ReadRun] = {}  # the same, of those that have waited for too long
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its connection has, so that what is outstanding fails: another channel takes what follows."""
        return self._link is not None and not self._link.alive

    def ask(self, entry: EntryId) -> SingleRead | None:
        """Read an entry. Returns None if that is under way already."""
        if entry in self._reads or entry in self._late:
            return None
        if not self._unsent:
            if self._link is None:
                self._link = self._connect()
            self._turn_at = self._clock.now()
            self._link.gather(self._send)
        self._unsent.append(entry)
        read = self._reads[entry] = SingleRead(loop=self._loop)
        read.asked_at = self._turn_at
        return read

    def _send(self) -> None:
        entries, self._unsent = self._unsent, []
        entries.sort()
        assert self._link is not None, "something is outstanding"
        if self._lane is None:
            self._lane = self._link.add_read_lane(self._ledger, self)
        self._link.send_reads(self._lane, self._ledger, entries, self._settings.read_timeout_s)
        if self._timer is None:
            self._timer = self._loop.call_later(self._settings.speculative_read_s, self._look)

    def _look(self) -> None:
        """Let those who have waited for too long ask another bookie."""
        self._timer, now = None, self._clock.now()
        while self._reads:
            entry, read = next(iter(self._reads.items()))
            wait_s = read.asked_at + self._settings.speculative_read_s - now
            if wait_s > 0:
                self._timer = self._loop.call_later(wait_s, self._look)
                return
            run = self._late[entry] = ReadRun((entry,))
            self._resolve(self._reads.pop(entry), run)

    # Responses

    def received(self, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        """For the link: good responses."""
        counts, now, payload_bytes = self._counts, self._clock.now(), 0
        turn_at, turn_count = 0.0, 0  # those that were asked for together count together
        opened = open_singles(entries, data, self._ledger, self._digest.compute_all, self._digest.size)
        for at, (entry, fields) in enumerate(zip(entries, opened, strict=True)):
            read = self._reads.pop(entry, None)
            if read is None or fields is None:
                self._run_of(entry, read).received([entry], data[at : at + 1])
            elif not read.done():
                read.set_result(fields)
                payload_bytes += len(fields[0])
                if read.asked_at != turn_at:
                    counts.read_latencies.took(now - turn_at, turn_count)
                    turn_at, turn_count = read.asked_at, 0
                turn_count += 1
                counts.reads += 1
        counts.read_latencies.took(now - turn_at, turn_count)
        counts.read_bytes += payload_bytes
        self._leave_if_idle()

    def refused(self, entries: list[EntryId], code: Code) -> None:
        """For the link: the bookie answered with another code."""
        for entry in entries:
            self._run_of(entry, self._reads.pop(entry, None)).refused([entry], code)
        self._leave_if_idle()

    def failed(self, entries: list[EntryId], error: TallyError) -> None:
        """For the link: no answer in time, or the connection ended."""
        for entry in entries:
            self._run_of(entry, self._reads.pop(entry, None)).failed([entry], error)
        self._leave_if_idle()

    def _run_of(self, entry: EntryId, read: SingleRead | None) -> ReadRun:
        """Return who hears of a response that is not good, or late: the reader learns of it in its next turn."""
        if read is None:
            return self._late.pop(entry)
        run = ReadRun((entry,))
        self._resolve(read, run)
        return run

    @staticmethod
    def _resolve(read: SingleRead, run: ReadRun) -> None:
        if not read.done():
            read.set_result(run)

    def _leave_if_idle(self) -> None:
        if not (self._reads or self._late):
            if self._link is not None and self._lane is not None:
                self._link.forget(self._lane)
            self._link = self._lane = None
