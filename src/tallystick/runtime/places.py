"""Who may be connected when more want to be than there are places: no host keeps the others out.

A core. While places are free everybody gets one. After that a newcomer takes the place of a peer of the host that has
most of them, of the one that was quiet for longest. A newcomer of that host itself, or of one that has as many, takes
the place of such a host's peer that never spoke; if there is none, it is the one that goes. So connections that only
wait keep nobody out, from however many hosts they come.

A storm of newcomers is when time is short: none of them is compared with all who are there.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import count
from math import inf
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


_PASSED_OVER = 16  # of those that never spoke and are of hosts with fewer places, for one newcomer


def _all_alike(_: object) -> float:
    return 0.0


def _all_spoke(_: object) -> bool:
    return True


class Places(Generic[Peer]):
    """``arrived`` for each connection, ``left`` at its end."""

    def __init__(
        self,
        most: int,
        quiet_since: Callable[[Peer], float] = _all_alike,
        has_spoken: Callable[[Peer], bool] = _all_spoke,
    ) -> None:
        """``quiet_since``: when a peer last did something, which never goes back; of equal ones the oldest goes.
        ``has_spoken``: whether a whole request of it ever came."""
        self._most, self._quiet_since, self._has_spoken = most, quiet_since, has_spoken
        self._silent: OrderedDict[Peer, None] = OrderedDict()  # those that had not spoken when they were looked at
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
        if not self._has_spoken(newcomer):
            self._silent[newcomer] = None
        if len(self._hosts) <= self._most:
            return None
        if len(peers) < self._largest:
            crowded = next(iter(self._of_size[self._largest]))
            goes = self._peers[crowded].quietest(self._quiet_since)
        else:
            goes = self._silent_or(newcomer)
        self.left(goes)
        return goes

    def _silent_or(self, newcomer: Peer) -> Peer:
        """Returns who never spoke, of the hosts that have most, about the oldest of them; the newcomer if there is
        none."""
        passed_over = 0
        while self._silent and passed_over < _PASSED_OVER:
            peer = next(iter(self._silent))
            if self._has_spoken(peer):
                del self._silent[peer]
            elif len(self._peers[self._hosts[peer]]) == self._largest:
                return peer
            else:
                self._silent.move_to_end(peer)
                passed_over += 1
        return newcomer

    def left(self, peer: Peer) -> None:
        """Its connection ended; nothing happens to one that has no place."""
        host = self._hosts.pop(peer, None)
        if host is None:
            return
        self._silent.pop(peer, None)
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
