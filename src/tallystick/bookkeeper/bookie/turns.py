"""The turns of the event loop, and who is served in each: no turn is long, and adds do not wait behind readers.

Each of the two kinds of work may take so many seconds of a turn, adds first. Who comes after that waits for one of the
next turns, in the order of ``runtime/turn_order.py``: who used least comes first, so that a host with hundreds of
connections has the same share as one with a single one, and who sends a request alone waits for few of those that have
more to do. The seconds of several short turns add up before anybody has to wait: nothing needs to be done at the begin
of a turn in which nobody waits. What a peer uses meanwhile is charged by the millisecond, and when somebody waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from tallystick.runtime.turn_order import SPARE, TurnOrderCore

TURN_S = 0.01  # of each kind of work, and of one peer
CHARGED_S = 0.001  # or more, while nobody waits: far less than what one turn is charged at most

Peer = TypeVar("Peer", bound=Hashable)


class Kind(IntEnum):
    """What a peer wants; served in this order."""

    ADD = 0
    READ = 1


class TurnsCore(Generic[Peer]):
    """Ask ``admits``, tell what it ``spent``; who is not admitted ``wait``s, and is served when ``begin`` gives it."""

    def __init__(self, limit_s: float) -> None:
        """``limit_s`` is the time of each kind of work in one turn."""
        self._limit_s = limit_s
        self._spent = [0.0] * len(Kind)
        self._waiting: list[TurnOrderCore[Peer]] = [TurnOrderCore() for _ in Kind]
        self._uncharged: list[dict[Peer, tuple[str, float]]] = [{} for _ in Kind]  # host and seconds; nobody waits

    def admits(self, kind: Kind) -> bool:
        """Return whether a peer may be served now, ahead of nobody who waits."""
        return not self._waiting[kind] and self._spent[kind] < self._limit_s

    def spent(self, kind: Kind, seconds: float, peer: Peer, host: str) -> None:
        """A peer was served for so long."""
        self._spent[kind] += seconds
        order, uncharged = self._waiting[kind], self._uncharged[kind]
        if not order:
            before = uncharged.get(peer)
            if before is not None:
                seconds += before[1]
            if seconds < CHARGED_S and len(uncharged) < SPARE:
                uncharged[peer] = host, seconds
                return
            if before is not None:
                del uncharged[peer]
        order.spent(peer, host, seconds)

    def wait(self, kind: Kind, peer: Peer, host: str) -> None:
        """Serve the peer in one of the next turns."""
        order, uncharged = self._waiting[kind], self._uncharged[kind]
        while uncharged:
            other, used = uncharged.popitem()
            order.spent(other, *used)
        order.add(peer, host)

    def leave(self, peer: Peer, host: str) -> None:
        """The peer is gone."""
        for order, uncharged in zip(self._waiting, self._uncharged, strict=True):
            if (used := uncharged.pop(peer, None)) is not None:
                order.spent(peer, *used)
            order.discard(peer, host)

    @property
    def due(self) -> bool:
        """Whether the next turn has somebody to serve."""
        return any(self._waiting)

    def begin(self) -> Iterator[tuple[Peer, Kind]]:
        """Begin a turn. Yields the peers to serve now, each before the next is drawn; as many as wait when it
        begins."""
        self._spent = [0.0] * len(Kind)
        for kind, order in zip(Kind, self._waiting, strict=True):
            for _ in range(len(order)):
                if not order or self._spent[kind] >= self._limit_s:
                    break
                yield order.pop(), kind
