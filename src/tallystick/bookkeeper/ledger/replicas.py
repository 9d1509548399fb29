"""The ensemble as places to send to, and the frames that may have to be sent again.

A place has one channel per attempt: what the answers of a replaced bookie say is never heard. Frames are kept in parts
until they are confirmed, because a resend must have the same bytes; they are joined once for all places that get the
same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tallystick.bookkeeper.ledger.connection import AddChannel, BookieClient
from tallystick.bookkeeper.ledger.identity import Belief
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.values import Ensemble, EntryId, LedgerId, Slot
from tallystick.codec.frames import AddFrames

Acked = Callable[[Slot, EntryId, EntryId], None]
Failed = Callable[[Slot, list[EntryId], int | None], None]


class Replicas:
    """Sends one ledger's ADD frames. ``acked`` hears of runs of a slot's stripe, ``failed`` of entries and a code."""

    def __init__(
        self,
        bookies: BookieClient,
        ledger: LedgerId,
        striping: Striping,
        ensemble: Ensemble,
        acked: Acked,
        failed: Failed,
    ) -> None:
        self._bookies, self._ledger, self._striping = bookies, ledger, striping
        self._acked, self._failed = acked, failed
        self._kept: deque[tuple[EntryId, AddFrames]] = deque()  # (first entry, frames) of each send
        self._ensemble = ensemble
        self._beliefs = [Belief() for _ in ensemble]  # for as long as a place keeps its bookie
        self._channels: list[AddChannel | None] = [self._open(slot) for slot in range(len(ensemble))]

    def send(self, first: EntryId, frames: AddFrames) -> None:
        """Each frame to its write set; frame i is entry ``first`` + i."""
        self._kept.append((first, frames))
        last = first + len(frames) - 1
        if not self._striping.striped:
            entries, joined = range(first, last + 1), frames.joined(0, len(frames))
            for channel in self._channels:
                if channel is not None:
                    channel.send(entries, joined)
            return
        for slot in range(len(self._channels)):
            self._send(slot, first, frames, first, last)

    def resend(self, slot: Slot, first: EntryId, last: EntryId) -> None:
        """The kept frames of the slot's stripe."""
        for start, frames in self._kept:
            low, high = max(start, first), min(start + len(frames) - 1, last)
            if low <= high:
                self._send(slot, start, frames, low, high)

    def replace(self, ensemble: Ensemble) -> None:
        """New attempts for the places that changed."""
        for slot, bookie in enumerate(ensemble):
            if bookie != self._ensemble[slot]:
                self._beliefs[slot] = Belief()
                self._ensemble = (*self._ensemble[:slot], bookie, *self._ensemble[slot + 1 :])
                self.resume(slot)

    def suspend(self, slot: Slot) -> None:
        """Nothing is sent to this place, and its late answers are not heard, until ``resume``."""
        channel, self._channels[slot] = self._channels[slot], None
        if channel is not None:
            channel.close()

    def resume(self, slot: Slot) -> None:
        """A new attempt. An empty bookie at the old address is not believed: the place has kept its bookie."""
        self.suspend(slot)
        self._channels[slot] = self._open(slot)

    def confirmed(self, lac: EntryId) -> None:
        """Frames up to ``lac`` are needed no more; those sent together are dropped together."""
        while self._kept and self._kept[0][0] + len(self._kept[0][1]) - 1 <= lac:
            self._kept.popleft()

    def close(self) -> None:
        for slot in range(len(self._channels)):
            self.suspend(slot)

    def _send(self, slot: Slot, start: EntryId, frames: AddFrames, first: EntryId, last: EntryId) -> None:
        """Of the frames from entry ``start`` on, those of the slot's stripe from ``first`` to ``last``."""
        channel, entries = self._channels[slot], self._striping.stripe(slot, first, last)
        if channel is not None and entries:
            channel.send(entries, frames.picked(entry - start for entry in entries))

    def _open(self, slot: Slot) -> AddChannel:
        def acked(entries: list[EntryId]) -> None:
            first, last = entries[0], entries[-1]
            if last - first < len(entries) and entries == list(range(first, last + 1)):
                self._acked(slot, first, last)
                return
            for first, last in self._striping.runs(slot, entries):
                self._acked(slot, first, last)

        def failed(entries: list[EntryId], code: int | None) -> None:
            self._failed(slot, entries, code)

        return self._bookies.adds(self._ensemble[slot], self._ledger, acked, failed, self._beliefs[slot])
