"""Whose turn is next, of peers that wait: no host and no peer with very much to do keeps the others waiting. A core.

Peers that come with a request and those that go on with what was left over when they had a turn have their turns by
turns, and so have hosts. So a request that comes alone waits for one turn of each host or two, though hundreds of
connections, of its own host as well, have more to do than there is time for.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)
Item = TypeVar("Item")


class TurnOrderCore(Generic[Peer]):
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
        for table in (self._host_of, self._came, self._going_on):
            table.clear()


class PeerQueues(Generic[Peer, Item]):
    """What peers have that waits: one of each peer in turn, in the order in which it came from that peer. ``len``: all
    of it."""

    def __init__(self) -> None:
        self._queues: dict[Peer, tuple[str, deque[Item]]] = {}  # and its host
        self._order: TurnOrderCore[Peer] = TurnOrderCore()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, peer: Peer, host: str, item: Item) -> None:
        """It waits, behind those of its peer."""
        self._queues.setdefault(peer, (host, deque()))[1].append(item)
        self._order.add(peer, host, goes_on=False)
        self._count += 1

    def pop(self) -> Item:
        """The one whose turn it is; some wait."""
        peer = self._order.pop()
        host, queue = self._queues[peer]
        if len(queue) > 1:
            self._order.add(peer, host, goes_on=True)
        else:
            del self._queues[peer]
        self._count -= 1
        return queue.popleft()

    def discard(self, peer: Peer) -> None:
        """Nothing of it waits any more."""
        _, queue = self._queues.pop(peer, ("", ()))
        self._order.discard(peer)
        self._count -= len(queue)

    def clear(self) -> None:
        self._queues.clear()
        self._order.clear()
        self._count = 0
