"""Whose turn is next, of peers that wait: who used least time. A core.

Each host has the same share of the time, whatever the number of its connections, and each connection the same share of
its host's: who is served was charged least for the turns that it had. So a host that asks now and then is served next,
though a hundred others have more to do than there is time for; counting turns alone it would wait for one of each of
them. The hosts of one /64 of IPv6 share what one other host has, as one machine may have all of its addresses.

Who comes counts as if it had used as much as the one that is served (start-time fair queueing), but for ``CREDIT_S``:
nobody saves more time up. What somebody used beyond that is known for a while behind its last turn: a connection that
is busy with one request after the other is no newcomer each time. One turn is charged ``MOST_S`` at most, so nobody
waits for long for what it used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

from tallystick.runtime.peers import network_of

LEAST_S = 2e-5  # that a turn is charged
CREDIT_S = 0.001
MOST_S = 0.01
SPARE = 1024  # that do not wait, and whose use is known: hosts, and connections of each

Peer = TypeVar("Peer", bound=Hashable)
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


class _LeastUsed(Generic[Key]):
    """Keys that wait, each once; of those that used as much the one that came first is first. ``len``: how many."""

    __slots__ = ("_floor", "_forgotten", "_heap", "_level", "_numbers", "_used", "_waiting")

    def __init__(self, forgotten: Callable[[Key], object] = lambda key: None) -> None:
        """``forgotten`` is called when what one has used is known no more."""
        self._forgotten = forgotten
        self._waiting: dict[Key, None] = {}
        self._used: dict[Key, float] = {}  # seconds of those that wait, and of some that waited
        # Of those that wait, what each had used when it came or later; also of some that left since.
        self._heap: list[tuple[float, int, Key]] = []
        self._level = self._floor = 0.0  # what those that are served had used; what this is taken for at least
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        """It waits, and did not."""
        used, least = self._used.get(key), self._least()
        if used is None:
            self._know(key, used := least)
        elif used < least:
            self._used[key] = used = least
        self._waiting[key] = None
        heappush(self._heap, (used, next(self._numbers), key))

    def pop(self) -> Key:
        """Returns who used least, and waits no more; somebody waits."""
        key = self.first()
        self.settle(key, waits=False)
        return key

    def _least(self) -> float:
        """Returns for how much who comes counts at least."""
        return (self._level if self._level > self._floor else self._floor) - CREDIT_S

    def first(self) -> Key:
        """Returns who used least, charged with a turn; ``settle`` comes next. Somebody waits."""
        heap = self._heap
        while True:
            used_then, _, key = heap[0]
            if key not in self._waiting:
                heappop(heap)
            elif (used := self._used[key]) > used_then:
                heapreplace(heap, (used, next(self._numbers), key))
            else:
                break
        if used > self._level:
            self._level = used
        self.spent(key, LEAST_S)
        return key

    def settle(self, key: Key, *, waits: bool) -> None:
        """Whether the first one waits again: that costs less than to ``pop`` and to ``add`` it."""
        if not waits:
            heappop(self._heap)
            self.leave(key)
        elif (least := self._least()) > self._used[key]:
            self._used[key] = least

    def spent(self, key: Key, seconds: float) -> None:
        """Charge a turn, whether it waited for it or not."""
        # For each request of a crowd: comparisons, as ``min`` and ``max`` take as long as all else here.
        cost, used, level = seconds if seconds < MOST_S else MOST_S, self._used.get(key), self._level
        if level < self._floor:
            level = self._floor
        if used is None:
            self._know(key, level + cost)
        elif (most := level + MOST_S) > used:
            self._used[key] = used + cost if used + cost < most else most
        if self._waiting:
            # At half the pace of what each would have if all had the same, and not far behind: else those that wait
            # would do so as long as newcomers come.
            floor = self._level - MOST_S
            if floor < self._floor:
                floor = self._floor
            self._floor = floor + cost / (2 * (1 + len(self._waiting)))

    def leave(self, key: Key) -> None:
        """It waits no more."""
        self._waiting.pop(key, None)
        if len(self._heap) > 2 * len(self._waiting):  # most have left, and nothing is to be kept of them here
            self._heap = [(self._used[key], next(self._numbers), key) for key in self._waiting]
            heapify(self._heap)

    def known(self) -> Iterable[Key]:
        """Returns those of which it is known what they used."""
        return self._used

    def discard(self, key: Key) -> None:
        """It is gone, and waits no more."""
        self.leave(key)
        self._used.pop(key, None)

    def _know(self, key: Key, used: float) -> None:
        if len(self._used) > 2 * len(self._waiting) + SPARE:
            self._forget_others()
        self._used[key] = used

    def _forget_others(self) -> None:
        """Forget what those used that do not wait."""
        for key in [key for key in self._used if key not in self._waiting]:
            del self._used[key]
            self._forgotten(key)


class TurnOrderCore(Generic[Peer]):
    """Each peer once. ``len``: how many wait. ``pop`` one, let it have its turn, tell what it ``spent``."""

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, peer: object) -> bool:
        return peer in self._waiting

    def add(self, peer: Peer, host: str) -> None:
        """It waits; one that waits already stays where it is."""
        if peer not in self._waiting:
            self._waiting[peer] = host
            peers = self._peers_of(host)
            if not peers:
                hosts = self._hosts_of(network := network_of(host))
                if not hosts:
                    self._networks.add(network)
                hosts.add(host)
            peers.add(peer)

    def pop(self) -> Peer:
        """Whose turn it is; somebody waits."""
        hosts = self._hosts[network := self._networks.first()]
        peers = self._peers[host := hosts.first()]
        peer = peers.pop()
        hosts.settle(host, waits=bool(peers))
        self._networks.settle(network, waits=bool(hosts))
        del self._waiting[peer]
        return peer

    def spent(self, peer: Peer | None, host: str, seconds: float) -> None:
        """A turn of it took so long; also when it waits again, and when it had it without waiting. None: one that is
        gone, of which nothing is to be known any more."""
        network = network_of(host)
        self._networks.spent(network, seconds)
        self._hosts_of(network).spent(host, seconds)
        peers = self._peers_of(host)  # of each host that is known, though nothing is known of this peer
        if peer is not None:
            peers.spent(peer, seconds)

    def discard(self, peer: Peer, host: str) -> None:
        """It is gone, and waits no more, if it did, whatever its host was called then."""
        host = self._waiting.pop(peer, host)
        peers = self._peers.get(host)
        if peers is not None:
            peers.discard(peer)
            if not peers and (hosts := self._hosts.get(network := network_of(host))) is not None:
                hosts.leave(host)
                if not hosts:
                    self._networks.leave(network)

    def clear(self) -> None:
        self._waiting: dict[Peer, str] = {}
        self._peers: dict[str, _LeastUsed[Peer]] = {}  # by host
        self._hosts: dict[str, _LeastUsed[str]] = {}  # by network
        self._networks: _LeastUsed[str] = _LeastUsed(self._forget_network)

    def _forget_network(self, network: str) -> None:
        """Nobody of it waits."""
        for host in self._hosts.pop(network).known():
            self._peers.pop(host, None)

    def _hosts_of(self, network: str) -> _LeastUsed[str]:
        hosts = self._hosts.get(network)
        if hosts is None:
            hosts = self._hosts[network] = _LeastUsed(self._peers.pop)
        return hosts

    def _peers_of(self, host: str) -> _LeastUsed[Peer]:
        peers = self._peers.get(host)
        if peers is None:
            peers = self._peers[host] = _LeastUsed()
        return peers


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
        self._order.add(peer, host)
        self._count += 1

    def pop(self) -> Item:
        """The one whose turn it is; some wait."""
        peer = self._order.pop()
        host, queue = self._queues[peer]
        if len(queue) > 1:
            self._order.add(peer, host)
        else:
            del self._queues[peer]
        self._count -= 1
        return queue.popleft()

    def spent(self, peer: Peer | None, host: str, seconds: float) -> None:
        """The peer's turn took so long; None: of one that is gone."""
        self._order.spent(peer, host, seconds)

    def discard(self, peer: Peer, host: str) -> None:
        """It is gone, and nothing of it waits any more."""
        _, queue = self._queues.pop(peer, ("", ()))
        self._order.discard(peer, host)
        self._count -= len(queue)

    def clear(self) -> None:
        self._queues.clear()
        self._order.clear()
        self._count = 0
