"""The ensemble as places to send to, and the frames that may have to be sent again.

A place has one channel per attempt: responses of a replaced bookie are never heard. Frames are kept in
parts until they are confirmed, because a resend must have the same bytes. Short ones are joined, once for all places
that get the same ones; of long ones each connection holds the parts, so that a payload is in memory once, however many
bookies are behind. Confirmed frames that are still held *lag*, and are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from tallystick.bookkeeper.ledger.add_channel import AddChannel, QueuedFrames
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.identity import Belief
from tallystick.bookkeeper.ledger.outgoing import SharedPieces, cut
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, Ensemble, EntryId, LedgerId, Slot
from tallystick.codec.frames import AddFrames

BookieIdentities = Mapping[BookieId, Creation | None]

_NO_BELIEFS: Mapping[Slot, Belief] = MappingProxyType({})
_NOWHERE = frozenset[Slot]()  # one object for all


class ReplicasOwner(Protocol):
    """Who sends to the replicas, and hears of them."""

    def acked(self, slot: Slot, first: EntryId, last: EntryId) -> None:
        """The slot's bookie has stored this run of its stripe."""
        ...

    def add_failed(self, slot: Slot, entries: list[EntryId], code: Code | None) -> None:
        """The slot's bookie answered with ``code``, or (None) may have stored them."""
        ...

    def moved(self) -> None:
        """``lagging_bytes`` has become less by itself."""
        ...


@dataclass(slots=True)
class _SentRun:
    """Frames that were sent together."""

    first: EntryId
    frames: AddFrames
    size: int
    queued: list[QueuedFrames]


class Replicas:
    """Send one ledger's ADD frames.

    ``identities`` are the bookies' when they were chosen; of a bookie without one the first that is met is believed.
    """

    __slots__ = (
        "_beliefs",
        "_bookies",
        "_channels",
        "_deferred_sync",
        "_ensemble",
        "_identities",
        "_lagging",
        "_ledger",
        "_listening",
        "_number",
        "_owner",
        "_sent_runs",
        "_striping",
        "_suspended",
        "lagging_bytes",
    )

    def __init__(
        self,
        bookies: BookieClient,
        ledger: LedgerId,
        striping: Striping,
        ensemble: Ensemble,
        owner: ReplicasOwner,
        identities: BookieIdentities = MappingProxyType({}),
        *,
        deferred_sync: bool = False,
    ) -> None:
        """``deferred_sync``: the frames say so."""
        self._deferred_sync = deferred_sync
        self._bookies, self._ledger, self._striping = bookies, ledger, striping
        self._owner = owner
        # First those that lag: confirmed, and in the queue of a bookie that is behind.
        self._sent_runs: deque[_SentRun] = deque()
        self._lagging = 0  # how many those are
        self.lagging_bytes = 0  # of their payloads
        self._listening = False
        self._ensemble, self._identities = ensemble, identities
        self._channels: dict[Slot, AddChannel] = {}  # once there is something to send: an entry may be all that is
        self._beliefs: Mapping[Slot, Belief] = _NO_BELIEFS  # where a place has no channel, but had one
        self._suspended = _NOWHERE
        self._number: int | None = None  # of the first channel, and of the first one of each other place

    def send(self, first: EntryId, frames: AddFrames, size: int) -> None:
        """Send each frame to its write set; frame i is entry ``first`` + i. ``size``: bytes of the payloads."""
        last, queued = first + len(frames) - 1, []
        if last > first and self._striping.striped:
            for slot in range(len(self._ensemble)):
                queued += self._send(slot, first, frames, first, last)
        else:  # all places that store one of them get all of them
            entries, pieces = range(first, last + 1), SharedPieces(cut(frames.parts))
            for slot in self._striping.slots(first):
                if slot not in self._suspended:
                    queued.append(self._channel(slot).send(entries, pieces))
        self._sent_runs.append(_SentRun(first, frames, size, queued))

    def resend(self, slot: Slot, first: EntryId, last: EntryId) -> None:
        """Send the held frames of the slot's stripe again."""
        for run in self._sent_runs:
            low, high = max(run.first, first), min(run.first + len(run.frames) - 1, last)
            if low <= high:
                run.queued += self._send(slot, run.first, run.frames, low, high)

    def replace(self, ensemble: Ensemble, identities: BookieIdentities = MappingProxyType({})) -> None:
        """Make new attempts for the places that changed."""
        for slot, bookie in enumerate(ensemble):
            if bookie != self._ensemble[slot]:
                self._ensemble = (*self._ensemble[:slot], bookie, *self._ensemble[slot + 1 :])
                self.resume(slot)
                self._beliefs = {**self._beliefs, slot: _believed(bookie, identities)}

    def suspend(self, slot: Slot) -> None:
        """Send nothing to this place, and do not hear its late responses, until ``resume``."""
        self._suspended |= {slot}
        self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        channel = self._channels.pop(slot, None)
        if channel is not None:
            self._beliefs = {**self._beliefs, slot: channel.belief}
            channel.close()
            self._trim()

    def resume(self, slot: Slot) -> None:
        """Make a new attempt. The place keeps its bookie, so an empty one at the old address is not believed."""
        self._drop(slot)
        self._suspended -= {slot}

    def believes(self, bookie: BookieId, identity: Creation | None) -> bool:
        """Return whether the bookie of the ensemble had this identity when it was chosen, or met first."""
        places = [slot for slot, name in enumerate(self._ensemble) if name == bookie]
        return all(self._belief_of(slot).expects(identity) for slot in places)

    @property
    def identities(self) -> BookieIdentities:
        """The known identities of the ensemble's bookies."""
        identities: dict[BookieId, Creation | None] = {}
        for slot, bookie in enumerate(self._ensemble):
            if (belief := self._known_belief(slot)) is None:
                if bookie in self._identities:
                    identities[bookie] = self._identities[bookie]
            elif (expected_identity := belief.expected_identity) is not None:
                identities[bookie] = expected_identity[0]
        return identities

    @property
    def is_quiet(self) -> bool:
        """Whether every place has answered everything and was believed, and nothing is held."""
        if self._sent_runs or self._suspended:
            return False
        return all([channel.is_quiet for channel in self._channels.values()])

    @property
    def silent(self) -> tuple[BookieId, ...]:
        """The bookies that have not answered all that was sent to them."""
        return tuple(self._ensemble[slot] for slot, channel in self._channels.items() if not channel.is_quiet)

    def confirmed(self, lac: EntryId) -> int:
        """Frames up to ``lac`` are needed no more; those sent together are dropped together, once no queue has them.

        Returns the ledger's length up to ``lac``, which is an entry that was sent and is newly confirmed.
        """
        last = NO_ENTRY
        while last < lac:
            run = self._sent_runs[self._lagging]
            last = run.first + len(run.frames) - 1
            if last >= lac:
                length = run.frames.length(lac - run.first)
            if last <= lac:
                run.frames = AddFrames()
                self._lagging += 1
                self.lagging_bytes += run.size
        self._trim()
        return length

    def _trim(self) -> None:
        """Forget what no queue holds any more; ask to be called again for the rest."""
        while self._lagging:
            unwritten = next((queued for queued in self._sent_runs[0].queued if queued.is_held), None)
            if unwritten is not None:
                if not self._listening:
                    self._listening = True
                    unwritten.when_written(self._frames_written)
                return
            self._lagging -= 1
            self.lagging_bytes -= self._sent_runs.popleft().size

    def _frames_written(self) -> None:
        self._listening = False
        self._trim()
        self._owner.moved()

    def close(self) -> None:
        self._suspended = frozenset(range(len(self._ensemble)))
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._trim()

    def _send(self, slot: Slot, start: EntryId, frames: AddFrames, first: EntryId, last: EntryId) -> list[QueuedFrames]:
        """Send those of the frames from entry ``start`` on that are in the slot's stripe from ``first`` to ``last``."""
        entries = self._striping.stripe(slot, first, last)
        if slot in self._suspended or not entries:
            return []
        channel = self._channel(slot)
        parts = frames.parts_of(entry - start for entry in entries)
        return [channel.send(entries, cut(parts, join=not channel.blocked))]

    def _channel(self, slot: Slot) -> AddChannel:
        """Return the channel of a place that is not suspended."""
        channel = self._channels.get(slot)
        if channel is None:
            bookie = self._ensemble[slot]
            open_channel = self._bookies.deferred_adds if self._deferred_sync else self._bookies.adds
            number = None if slot in self._beliefs else self._number
            channel = open_channel(bookie, self._ledger, self, slot, self._belief_of(slot), number)
            self._channels[slot] = channel
            if self._number is None:
                self._number = channel.number
        return channel

    def connection(self, slot: Slot) -> int:
        """Return the number of the connection that the slot's answers came over last."""
        return self._channels[slot].connection

    def failure(self, slot: Slot) -> str:
        """Return why the slot had no answer, the last time."""
        return self._channels[slot].failure

    def _belief_of(self, slot: Slot) -> Belief:
        """Return the belief of a place: the same one while it keeps its bookie, once there was a channel."""
        return self._known_belief(slot) or _believed(self._ensemble[slot], self._identities)

    def _known_belief(self, slot: Slot) -> Belief | None:
        channel = self._channels.get(slot)
        return self._beliefs.get(slot) if channel is None else channel.belief

    def on_acked(self, slot: Slot, entries: list[EntryId]) -> None:
        """For the channels: the slot's bookie has stored these."""
        first, last = entries[0], entries[-1]
        if last - first < len(entries) and entries == list(range(first, last + 1)):
            self._owner.acked(slot, first, last)
            return
        for first, last in self._striping.runs(slot, entries):
            self._owner.acked(slot, first, last)

    def on_failed(self, slot: Slot, entries: list[EntryId], code: Code | None) -> None:
        """For the channels: the slot's bookie answered with ``code``, or (None) may have stored them."""
        self._owner.add_failed(slot, entries, code)


def _believed(bookie: BookieId, identities: BookieIdentities) -> Belief:
    return Belief((identities[bookie],) if bookie in identities else None)
