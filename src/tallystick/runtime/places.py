"""Who may be connected when more want to be than there are places: no host keeps the others out.

A core. While places are free everybody gets one. After that a newcomer takes the place of a peer of the host that has
most of them, of the one that was quiet for longest; a newcomer of that host itself is the one that goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


def _all_alike(_: object) -> float:
    return 0.0


class Places(Generic[Peer]):
    """``arrived`` for each connection, ``left`` at its end."""

    def __init__(self, most: int, quiet_since: Callable[[Peer], float] = _all_alike) -> None:
        """``quiet_since``: when a peer last did something; of equal ones the oldest goes."""
        self._most, self._quiet_since = most, quiet_since
        self._hosts: dict[Peer, str] = {}  # oldest first
        self._of_host: Counter[str] = Counter()

    def arrived(self, newcomer: Peer, host: str) -> Peer | None:
        """Returns who has to go, the newcomer perhaps, and has no place any more; None: all may stay."""
        self._hosts[newcomer] = host
        self._of_host[host] += 1
        if len(self._hosts) <= self._most:
            return None
        goes = newcomer
        crowded, count = self._of_host.most_common(1)[0]
        if self._of_host[host] < count:
            goes = min((peer for peer, of in self._hosts.items() if of == crowded), key=self._quiet_since)
        self.left(goes)
        return goes

    def left(self, peer: Peer) -> None:
        """Its connection ended; nothing happens to one that has no place."""
        host = self._hosts.pop(peer, None)
        if host is None:
            return
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
