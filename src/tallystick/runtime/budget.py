"""What the peers of one server make it hold in memory, and which of them must go when that is too much.

A server holds bytes for a peer in three ways: *unsent* are responses that the peer has not taken, *unfinished* are
requests that have not come whole, or could not be served yet, *kept* is what it remembers of the peer while the
connection lasts. Each connection is bounded by itself; that says nothing about thousands of them. So one ``Budget`` a
server counts the bytes of all its connections::

    what happens                                     what the server calls
    bytes were given to a transport                  unsent(peer, what it holds (``UnsentWrites``), now, …)
    about once a second, each peer of ``takers()``   unsent(peer, what it holds, now, …)
    bytes of requests came, or were used             unfinished(peer, how many are there now, now, progress=…)
    something is remembered, or forgotten            kept(peer, how many bytes that is now)
    the connection was closed                        forget(peer)
    ``over`` is true, or about once a second         close each peer of ``excess(now, look)``, with its reason

A transport tells nobody when part of its buffer has gone out, hence the look once a second. Responses that must never
be refused (acknowledgements, HA) count like others: the reader with the most unsent bytes is closed for them.

Of unfinished requests the oldest go first, not the largest: a frame of an honest sender is large for a moment, those of
peers that let theirs trickle are there for as long as they like.

To choose is to sort all peers. So once more is held than may be, a ``SPARE`` of the limit is made free: the next bytes
that come do not cost that again. Thousands may have to go: that is done in steps, some in each turn of the loop, and
each looks at one peer, or ranks some. What was written may have gone out since it was counted; nobody is closed for
that.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Generic, TypeVar

SPARE = 1 / 64  # of the limit
STEP_RANKED = 50  # peers that are ranked in one step: that takes about as long as the end of one

Peer = TypeVar("Peer", bound=Hashable)
Rank = tuple[float, int]  # who has the highest goes first


class CloseReason(StrEnum):
    """Why a peer's connection must be closed."""

    STALLED = "the peer took none of its answers for too long"
    UNSENT = "answers that peers do not take fill the memory that is set aside, and this peer has most of them"
    UNFINISHED = "unfinished requests fill the memory that is set aside, and this peer's has been so for longest"
    KEPT = "what is remembered of peers fills the memory that is set aside, and most of it is this peer's"


@dataclass(frozen=True)
class Excess(Generic[Peer]):
    """A peer whose connection must be closed, and the bytes that were held for it."""

    peer: Peer
    reason: CloseReason
    bytes: int


@dataclass(slots=True)
class _Unsent:
    size: int
    moved_at: float  # when the peer last took something, or had nothing to take


@dataclass(slots=True)
class _Unfinished:
    size: int
    since: float  # when a request of this peer was last served, or it had none


class Budget(Generic[Peer]):
    """See the module. Times are seconds of one clock that never goes back."""

    def __init__(self, limit_bytes: int, stalled_after_s: float) -> None:
        """``limit_bytes`` bounds what is held of all kinds together; ``stalled_after_s`` is how long a peer may take
        none of its responses."""
        self.limit_bytes, self._stalled_after_s = limit_bytes, stalled_after_s
        self.unsent_bytes = self.unfinished_bytes = self.kept_bytes = 0
        self._unsent: dict[Peer, _Unsent] = {}
        self._unfinished: dict[Peer, _Unfinished] = {}
        self._kept_sizes: dict[Peer, int] = {}

    @property
    def held_bytes(self) -> int:
        return self.unsent_bytes + self.unfinished_bytes + self.kept_bytes

    @property
    def over(self) -> bool:
        """Whether more is held than may be: call ``excess``."""
        return self.unsent_bytes + self.unfinished_bytes + self.kept_bytes > self.limit_bytes

    def unsent(self, peer: Peer, size: int, now: float, *, has_taken: bool = False) -> None:
        """``size`` bytes are held of what was given to the peer's transport.

        ``has_taken``: the peer has read something since the last call, though the size may not show it.
        """
        unsent = self._unsent.get(peer)
        if unsent is None:
            if size:
                self._unsent[peer] = _Unsent(size, now)
                self.unsent_bytes += size
            return
        self.unsent_bytes += size - unsent.size
        if not size:
            del self._unsent[peer]
            return
        if has_taken or size < unsent.size:
            unsent.moved_at = now
        unsent.size = size

    def unfinished(self, peer: Peer, size: int, now: float, *, progress: bool = False) -> None:
        """``size`` bytes are there now of requests that are not served; ``progress``: one was since this was last told.

        Fewer bytes than before are progress too.
        """
        unfinished = self._unfinished.get(peer)
        if unfinished is None:
            if size:
                self._unfinished[peer] = _Unfinished(size, now)
                self.unfinished_bytes += size
            return
        self.unfinished_bytes += size - unfinished.size
        if not size:
            del self._unfinished[peer]
            return
        if progress or size < unfinished.size:
            unfinished.since = now
        unfinished.size = size

    def kept(self, peer: Peer, size: int) -> None:
        """``size`` bytes are remembered of the peer now."""
        self.kept_bytes += size - self._kept_sizes.pop(peer, 0)
        if size:
            self._kept_sizes[peer] = size

    def forget(self, peer: Peer) -> int:
        """Its connection is closed; nothing is held for it. Returns how many bytes were."""
        held_bytes = self.held_bytes
        self.kept(peer, 0)
        if (unfinished := self._unfinished.pop(peer, None)) is not None:
            self.unfinished_bytes -= unfinished.size
        if (unsent := self._unsent.pop(peer, None)) is not None:
            self.unsent_bytes -= unsent.size
        return held_bytes - self.held_bytes

    def takers(self) -> tuple[Peer, ...]:
        """The peers that have responses to take, in the order in which these began to wait."""
        return tuple(self._unsent)

    def excess(self, now: float, look: Callable[[Peer], None]) -> Iterator[Excess[Peer] | None]:
        """Yields in steps the peers to close at once, which are forgotten: those that took nothing for too long, then
        as many as it takes for the rest to fit, and to leave ``SPARE`` free; None where nobody goes in a step.

        These are of the kind of which most is held: closing others would not help. The largest go first, of unfinished
        requests the oldest. ``look`` tells what is ``unsent`` to a peer now, before it would have to go for that.
        """
        limit = now - self._stalled_after_s
        for peer in [peer for peer, unsent in self._unsent.items() if unsent.moved_at <= limit]:
            if peer in self._unsent:
                look(peer)
            unsent = self._unsent.get(peer)
            if unsent is None or unsent.moved_at > limit:
                yield None
                continue
            self.forget(peer)
            yield Excess(peer, CloseReason.STALLED, unsent.size)
        while self.over:
            yield from self._until_the_rest_fits(look)

    def _until_the_rest_fits(self, look: Callable[[Peer], None]) -> Iterator[Excess[Peer] | None]:
        """Also returns when all that held something when it began were looked at."""
        candidates: dict[CloseReason, list[tuple[Rank, Peer]]] = {}  # who goes first is last
        enough = self.limit_bytes * (1 - SPARE)
        while self.held_bytes > enough:
            reason = self._fullest()
            if reason not in candidates:
                candidates[reason] = yield from self._ranked(reason)
            if not candidates[reason]:
                return
            before, peer = candidates[reason].pop()
            if reason is CloseReason.UNSENT and peer in self._unsent:
                look(peer)
            rank = self._rank(peer, reason)
            if rank is None:
                yield None  # it was forgotten meanwhile
            elif rank < before:
                insort(candidates[reason], (rank, peer), key=itemgetter(0))
                yield None
            else:
                size = self._size(peer, reason)
                self.forget(peer)
                yield Excess(peer, reason, size)

    def _fullest(self) -> CloseReason:
        """Returns the kind of which most is held."""
        sums = {
            CloseReason.UNSENT: self.unsent_bytes,
            CloseReason.UNFINISHED: self.unfinished_bytes,
            CloseReason.KEPT: self.kept_bytes,
        }
        return max(sums, key=sums.__getitem__)

    def _ranked(self, reason: CloseReason) -> Generator[None, None, list[tuple[Rank, Peer]]]:
        peers: dict[CloseReason, Iterable[Peer]] = {
            CloseReason.UNSENT: self._unsent,
            CloseReason.UNFINISHED: self._unfinished,
            CloseReason.KEPT: self._kept_sizes,
        }
        ranked = []
        for number, peer in enumerate(list(peers[reason]), 1):
            rank = self._rank(peer, reason)
            if rank is not None:
                ranked.append((rank, peer))
            if number % STEP_RANKED == 0:
                yield
        return sorted(ranked, key=itemgetter(0))

    def _rank(self, peer: Peer, reason: CloseReason) -> Rank | None:
        """Returns None for who holds nothing of this kind. Of equally old requests the largest goes first."""
        size = self._size(peer, reason)
        if not size:
            return None
        return (-self._unfinished[peer].since, size) if reason is CloseReason.UNFINISHED else (size, 0)

    def _size(self, peer: Peer, reason: CloseReason) -> int:
        if reason is CloseReason.KEPT:
            return self._kept_sizes.get(peer, 0)
        holding = self._unsent.get(peer) if reason is CloseReason.UNSENT else self._unfinished.get(peer)
        return holding.size if holding is not None else 0
