"""Who may be connected when more want to be than there are places: no host keeps the others out.

A core. While places are free everybody gets one. After that a newcomer takes the place of a peer of the host that has
most of them, of the one that was quiet for longest; a newcomer of that host itself is the one that goes.

A storm of newcomers is when time is short: none of them is compared with all who are there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count
from math import inf
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


def _all_alike(_: object) -> float:
    return 0.0


class Places(Generic[Peer]):
    """``arrived`` for each connection, ``left`` at its end."""

    def __init__(self, most: int, quiet_since: Callable[[Peer], float] = _all_alike) -> None:
        """``quiet_since``: when a peer last did something, which never goes back; of equal ones the oldest goes."""
        self._most, self._quiet_since = most, quiet_since
        self._hosts: dict[Peer, str] = {}
        self._peers: dict[str, _Peers[Peer]] = {}  # by host
        self._of_size: dict[int, dict[str, None]] = {}  # hosts by how many places they have
        self._largest = 0  # of those
        self._numbers = count()

    def arrived(self, newcomer: Peer, host: str) -> Peer | None:
        """Returns who has to go, the newcomer perhaps, and has no place any more; None: all may stay."""
        self._hosts[newcomer] = host
        peers = self._peers.setdefault(host, _Peers())
        peers.add(newcomer, next(self._numbers))
        self._resized(host, len(peers) - 1, len(peers))
        if len(self._hosts) <= self._most:
            return None
        goes = newcomer
        if len(peers) < self._largest:
            crowded = next(iter(self._of_size[self._largest]))
            goes = self._peers[crowded].quietest(self._quiet_since)
        self.left(goes)
        return goes

    def left(self, peer: Peer) -> None:
        """Its connection ended; nothing happens to one that has no place."""
        host = self._hosts.pop(peer, None)
        if host is None:
            return
        peers = self._peers[host]
        peers.remove(peer)
        self._resized(host, len(peers) + 1, len(peers))
        if not peers:
            del self._peers[host]

    def _resized(self, host: str, before: int, size: int) -> None:
        """By one."""
        if before:
            del self._of_size[before][host]
            if not self._of_size[before]:
                del self._of_size[before]
        if size:
            self._of_size.setdefault(size, {})[host] = None
        self._largest = max(self._largest, size)
        if self._largest not in self._of_size:
            self._largest = size


class _Peers(Generic[Peer]):
    """Those of one host."""

    def __init__(self) -> None:
        self._here: set[Peer] = set()
        # since when they were quiet at the last look, and their numbers; also of some that left
        self._by_quiet: list[tuple[float, int, Peer]] = []

    def __len__(self) -> int:
        return len(self._here)

    def add(self, peer: Peer, number: int) -> None:
        self._here.add(peer)
        heapq.heappush(self._by_quiet, (-inf, number, peer))

    def remove(self, peer: Peer) -> None:
        self._here.remove(peer)
        if len(self._by_quiet) > 2 * len(self._here):
            self._by_quiet = [one for one in self._by_quiet if one[2] in self._here]
            heapq.heapify(self._by_quiet)

    def quietest(self, quiet_since: Callable[[Peer], float]) -> Peer:
        """There is one. Only those are looked at again that were the quietest at the last look."""
        while True:
            last_since, number, peer = self._by_quiet[0]
            if peer not in self._here:
                heapq.heappop(self._by_quiet)
                continue
            since = quiet_since(peer)
            if since == last_since:
                return peer
            heapq.heapreplace(self._by_quiet, (since, number, peer))
