"""Who is served in which turn of the event loop: no turn is long, and adds do not wait behind readers.

Each of the two kinds of work may take so many seconds of a turn, adds first. Who comes after that waits for one of the
next turns: hosts have theirs one after the other, and the connections of a host in order, so that a host with hundreds
of them keeps the others waiting no longer than one with a single one. The seconds of several short turns add up before
anybody has to wait: nothing needs to be done at the begin of a turn in which nobody waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

TURN_S = 0.01  # of each kind of work, and of one peer

Peer = TypeVar("Peer", bound=Hashable)


class Kind(IntEnum):
    """What a peer wants; served in this order."""

    ADD = 0
    READ = 1


class Turns(Generic[Peer]):
    """Ask ``admits``, tell what it ``spent``; who is not admitted ``wait``s, and is served when ``begin`` gives it."""

    def __init__(self, limit_s: float) -> None:
        """``limit_s`` is the time of each kind of work in one turn."""
        self._limit_s = limit_s
        self._spent = [0.0] * len(Kind)
        self._waiting: list[OrderedDict[str, dict[Peer, None]]] = [OrderedDict() for _ in Kind]  # by host

    def admits(self, kind: Kind) -> bool:
        """Whether a peer may be served now, ahead of nobody who waits."""
        return not self._waiting[kind] and self._spent[kind] < self._limit_s

    def spent(self, kind: Kind, seconds: float) -> None:
        """So long a peer was served."""
        self._spent[kind] += seconds

    def wait(self, kind: Kind, peer: Peer, host: str) -> None:
        """Serve the peer in one of the next turns, when those of other hosts had theirs."""
        self._waiting[kind].setdefault(host, {})[peer] = None

    def leave(self, peer: Peer, host: str) -> None:
        """The peer wants nothing any more."""
        for hosts in self._waiting:
            peers = hosts.get(host, {})
            peers.pop(peer, None)
            if not peers:
                hosts.pop(host, None)

    @property
    def due(self) -> bool:
        """Whether the next turn has somebody to serve."""
        return any(self._waiting)

    def begin(self) -> Iterator[tuple[Peer, Kind]]:
        """A new turn: the peers to serve now, each before the next is asked for; as many as wait when it begins. Who
        waits again comes behind all other hosts, and behind the others of its own."""
        self._spent = [0.0] * len(Kind)
        for kind, hosts in zip(Kind, self._waiting, strict=True):
            for _ in range(sum(map(len, hosts.values()))):
                if not hosts or self._spent[kind] >= self._limit_s:
                    break
                host, peers = hosts.popitem(last=False)
                peer = next(iter(peers))
                del peers[peer]
                if peers:
                    hosts[host] = peers
                yield peer, kind
