"""One ledger's ADDs to one bookie, over as many connections as that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from tallystick.bookkeeper.ledger.identity import Belief, Identity, IdentityCallback
from tallystick.bookkeeper.ledger.lanes import Lane
from tallystick.bookkeeper.ledger.link import BookieLink
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.ledger.peer_times import PeerTimes
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId, Slot
from tallystick.codec.frames import Buffer
from tallystick.errors import TallyError


class Peer(Protocol):
    """A bookie, as the channels to it see it."""

    @property
    def connection(self) -> int:
        """The number of the newest connection: later ones have higher numbers."""
        ...

    @property
    def times(self) -> PeerTimes | None:
        """Who hears how long adds take; None if nobody does."""
        ...

    @property
    def bookie(self) -> BookieId: ...

    def link(self) -> BookieLink:
        """Return the living connection, a new one that is being made, or one that is about to fail."""
        ...

    def identify(self, link: BookieLink, callback: IdentityCallback) -> None:
        """Call back with the identity at the other end of the living link."""
        ...

    def doubted(self, ledger: LedgerId, identity: Identity) -> None:
        """Answers of this bookie do not count for a ledger."""
        ...


class AddListener(Protocol):
    """Hears about the ADDs of channels: on the loop, never inside ``send``, once for each socket read or failure, with
    all entries concerned. One object for all slots of a ledger: a process may have tens of thousands of them open."""

    def on_acked(self, slot: Slot, entries: list[EntryId]) -> None: ...

    def on_failed(self, slot: Slot, entries: list[EntryId], code: Code | None) -> None:
        """``code``: the bookie's; None when there was no answer in time, the connection ended, or another bookie
        answers in its place: it may have stored them."""
        ...


class AddChannel:
    """The ADDs of one attempt of one slot: its responses are told apart from those of any other channel.

    After ``close`` the listener hears nothing more.
    """

    __slots__ = (
        "_closed",
        "_lane",
        "_ledger",
        "_link",
        "_listener",
        "_peer",
        "_sample",
        "_sampled_at",
        "_slot",
        "_timeout_s",
        "belief",
        "connection",
        "failure",
        "number",
    )

    def __init__(
        self,
        peer: Peer,
        ledger: LedgerId,
        listener: AddListener,
        slot: Slot,
        timeout_s: float,
        belief: Belief,
        number: int,
    ) -> None:
        """``number``: no other channel to this bookie has it."""
        self._listener, self._slot = listener, slot
        self._peer, self._ledger, self._timeout_s = peer, ledger, timeout_s
        self._link: BookieLink | None = None
        self._lane: Lane[Owner] | None = None
        self._sample, self._sampled_at = NO_ENTRY, 0.0  # one add at a time is timed, if adds are
        self.belief, self.number = belief, number
        self.connection = 0  # the number of the one that the newest answers came over
        self.failure = ""  # why there was no answer, the last time
        self._closed = False

    @property
    def blocked(self) -> bool:
        """Whether frames that are sent now stay in the queue for a while."""
        return self._link is None or not self._link.alive or self._link.blocked

    def send(self, entries: Sequence[EntryId], frames: bytes | Iterable[OutgoingPiece]) -> QueuedFrames:
        """Queue ADD frames, one for each entry; they leave with the next loop tick, once connected.

        ``frames``: in any number of pieces, which are kept as they are until the bookie takes them.
        """
        assert not self._closed, "send on a closed channel"
        link = self._peer.link()
        if link is not self._link or self._lane is None:
            self._link, self._lane = link, link.add_lane(self._ledger, self.number, self)
            self.connection = self._peer.connection
            self.belief.linked()
            self._peer.identify(link, lambda identity: self._identified(link, identity))
        if (times := self._peer.times) is not None and self._sample == NO_ENTRY:
            self._sample, self._sampled_at = entries[-1], times.now()
        link.send_adds(
            self._lane, entries, (OutgoingPiece.of(frames),) if isinstance(frames, bytes) else frames, self._timeout_s
        )
        return QueuedFrames(self, link, link.queued_bytes)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_quiet(self) -> bool:
        """Whether the bookie has answered everything that was sent, and was believed."""
        return not self._lane and self.belief.is_quiet

    def received(self, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        """For the link: the bookie has stored these."""
        if self._sample != NO_ENTRY and entries[-1] >= self._sample:
            self._timed()
        if not self._closed and (counts := self.belief.acked(entries)) is not None:
            self._report(counts, entries)

    def _timed(self) -> None:
        self._sample = NO_ENTRY
        if self._peer.times is not None:
            self._peer.times.took(self._peer.bookie, self._sampled_at)

    def _identified(self, link: BookieLink, identity: Identity) -> None:
        if self._closed or link is not self._link:
            return
        counts, entries = self.belief.identified(identity)
        if not counts and link.alive:
            self._peer.doubted(self._ledger, identity)
        if entries:
            self._report(counts, entries)

    def _report(self, counts: bool, entries: list[EntryId]) -> None:
        if counts:
            self._listener.on_acked(self._slot, entries)
        else:  # somebody has them, but not the bookie that has what was sent before
            self.failure = "another bookie answers in its place"
            self._listener.on_failed(self._slot, entries, None)

    def refused(self, entries: list[EntryId], code: Code) -> None:
        """For the link: the bookie answered these with another code."""
        if not self._closed:
            self._listener.on_failed(self._slot, entries, code)

    def failed(self, entries: list[EntryId], error: TallyError) -> None:
        """For the link: no answer in time, or the connection ended."""
        if not self._closed:
            self.failure = error.message
            self._listener.on_failed(self._slot, entries, None)

    def close(self) -> None:
        """Late responses are dropped from now on."""
        self._closed = True
        if self._link is not None and self._lane is not None:
            self._link.forget(self._lane)


class QueuedFrames(NamedTuple):
    """Frames of one ``send``, which are held for as long as they are not written."""

    channel: AddChannel
    link: BookieLink
    position: int

    @property
    def is_held(self) -> bool:
        """Whether they wait for the bookie to take what was queued before. A closed channel holds nothing up."""
        return self.link.written_bytes < self.position and self.link.alive and not self.channel.is_closed

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back, on the loop, when they are held no more because they were written or the connection ended."""
        self.link.when_written(self.position, callback)
