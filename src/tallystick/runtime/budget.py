"""What the peers of one server make it hold in memory, and which of them must go when that is too much.

A server holds bytes for a peer in two ways: *unsent* are answers that the peer has not taken, *unfinished* are requests
that were received and could not be served yet, half frames above all. Each connection is bounded by itself; that says
nothing about thousands of them. So one ``Budget`` a server counts the bytes of all its connections::

    what happens                                     what the server calls
    bytes were given to a transport                  unsent(peer, transport.get_write_buffer_size(), now, written=…)
    about once a second, each peer of ``takers()``   unsent(peer, transport.get_write_buffer_size(), now)
    bytes of a request were kept, or used            unfinished(peer, how many are kept now)
    the connection was closed                        forget(peer)
    ``over`` is true, or about once a second         close each peer of ``excess(now)``, with the reason given there

A transport tells nobody when part of its buffer has gone out, hence the look once a second. Answers that must never be
refused (acknowledgements, HA) count like others: it is the reader with the most unsent bytes that is closed for them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


class Reason(StrEnum):
    """Why a peer's connection must be closed."""

    STALLED = "the peer took none of its answers for too long"
    UNSENT = "answers that peers do not take fill the memory that is set aside, and this peer has most of them"
    UNFINISHED = "unfinished requests fill the memory that is set aside, and this peer has most of them"


@dataclass(frozen=True)
class Excess(Generic[Peer]):
    """A peer whose connection must be closed, and the bytes that were held for it."""

    peer: Peer
    reason: Reason
    bytes: int


@dataclass(slots=True)
class _Unsent:
    size: int
    moved_at: float  # when the peer last took something, or had nothing to take


class Budget(Generic[Peer]):
    """See the module. Times are seconds of one clock that never goes back."""

    def __init__(self, limit_bytes: int, stalled_after_s: float) -> None:
        """``limit_bytes`` bounds unsent and unfinished bytes together; ``stalled_after_s`` is how long a peer may take
        none of its answers."""
        self.limit_bytes, self._stalled_after_s = limit_bytes, stalled_after_s
        self.unsent_bytes = self.unfinished_bytes = 0
        self._unsent: dict[Peer, _Unsent] = {}
        self._unfinished: dict[Peer, int] = {}

    @property
    def held_bytes(self) -> int:
        return self.unsent_bytes + self.unfinished_bytes

    @property
    def over(self) -> bool:
        """Whether more is held than may be: call ``excess``."""
        return self.held_bytes > self.limit_bytes

    def unsent(self, peer: Peer, size: int, now: float, *, written: int = 0, taken: bool = False) -> None:
        """Of all that was given to the peer's transport ``size`` bytes wait; ``written`` were given since last told.

        ``taken``: the peer took something, though the size does not show it.
        """
        found = self._unsent.get(peer)
        if found is None:
            if size:
                self._unsent[peer] = _Unsent(size, now)
                self.unsent_bytes += size
            return
        self.unsent_bytes += size - found.size
        if not size:
            del self._unsent[peer]
            return
        if taken or size < found.size + written:
            found.moved_at = now
        found.size = size

    def unfinished(self, peer: Peer, size: int) -> None:
        """``size`` bytes are kept now of what the peer sent."""
        self.unfinished_bytes += size - self._unfinished.pop(peer, 0)
        if size:
            self._unfinished[peer] = size

    def forget(self, peer: Peer) -> None:
        """Its connection is closed; nothing is held for it."""
        self.unfinished(peer, 0)
        if (found := self._unsent.pop(peer, None)) is not None:
            self.unsent_bytes -= found.size

    def takers(self) -> tuple[Peer, ...]:
        """The peers that have answers to take, in the order in which these began to wait."""
        return tuple(self._unsent)

    def largest(self) -> Excess[Peer] | None:
        """The peer to close when memory is short; None if nothing is held.

        It is the one with the most unsent bytes, unless unfinished requests are more than all unsent bytes: then
        closing readers would not help, and it is the one with the most of those.
        """
        if self._unsent and self.unsent_bytes >= self.unfinished_bytes:
            peer = max(self._unsent, key=lambda found: self._unsent[found].size)
            return Excess(peer, Reason.UNSENT, self._unsent[peer].size)
        if self._unfinished:
            peer = max(self._unfinished, key=self._unfinished.__getitem__)
            return Excess(peer, Reason.UNFINISHED, self._unfinished[peer])
        return None

    def excess(self, now: float) -> list[Excess[Peer]]:
        """The peers to close now, which are forgotten: those that took nothing for too long, then the largest until
        the rest fits."""
        limit = now - self._stalled_after_s
        found = [
            Excess(peer, Reason.STALLED, unsent.size)
            for peer, unsent in self._unsent.items()
            if unsent.moved_at <= limit
        ]
        for stalled in found:
            self.forget(stalled.peer)
        while self.over and (largest := self.largest()) is not None:
            self.forget(largest.peer)
            found.append(largest)
        return found
