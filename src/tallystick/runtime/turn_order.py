"""Whose turn is next, of peers that wait: no host and no peer with very much to do keeps the others waiting. A core.

Peers that come with a request and those that go on with what was left over when they had a turn have their turns by
turns, and so have hosts. So a request that comes alone waits for one turn of each host or two, though hundreds of
connections, of its own host as well, have more to do than there is time for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


class TurnOrder(Generic[Peer]):
    """Each peer once. ``len``: how many wait."""

    def __init__(self) -> None:
        self._host_of: dict[Peer, str] = {}
        # By host, whose turn is next first: those that came, and those that go on.
        self._came: OrderedDict[str, OrderedDict[Peer, None]] = OrderedDict()
        self._going_on: OrderedDict[str, OrderedDict[Peer, None]] = OrderedDict()
        self._lanes = [self._came, self._going_on]  # whose turn is next first

    def __len__(self) -> int:
        return len(self._host_of)

    def __contains__(self, peer: object) -> bool:
        return peer in self._host_of

    def add(self, peer: Peer, host: str, *, goes_on: bool) -> None:
        """It waits, behind the others of its kind and host; one that waits already stays where it is."""
        if peer not in self._host_of:
            self._host_of[peer] = host
            hosts = self._going_on if goes_on else self._came
            hosts.setdefault(host, OrderedDict())[peer] = None

    def pop(self) -> Peer:
        """Whose turn it is; somebody waits."""
        if not self._lanes[0]:
            self._lanes.reverse()
        hosts = self._lanes[0]
        self._lanes.reverse()
        host, peers = hosts.popitem(last=False)
        peer, _ = peers.popitem(last=False)
        if peers:
            hosts[host] = peers
        del self._host_of[peer]
        return peer

    def discard(self, peer: Peer) -> None:
        """It waits no more, if it did."""
        host = self._host_of.pop(peer, None)
        if host is not None:
            for hosts in (self._came, self._going_on):
                peers = hosts.get(host, OrderedDict())
                peers.pop(peer, None)
                if not peers:
                    hosts.pop(host, None)

    def clear(self) -> None:
        for waiting in (self._host_of, self._came, self._going_on):
            waiting.clear()
