"""Who may use the HA port: a known slave always gets in, strangers share a bounded number of places.

A connection is of one of three kinds, and each kind has places of its own:

greeting   it has not yet reported where its log ends. A new connection takes the place of the oldest one of the host
           that has most.
stranger   it has reported, and shown nothing more: an original slave, which has no id, or an id that is not known yet.
           A new one takes the place of the oldest that has acknowledged nothing; if there is none, it is refused.
known      its id belongs to a slave: its log has bytes that are the master's, or it acknowledged bytes that it was
           sent. Such an id is remembered, and has one place, however often it connects (R2).

So connections that only greet, or only report, never keep a slave out. A peer that has the id and the end of the log of
a slave counts as that slave: this port has no secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

AnyLink = TypeVar("AnyLink", bound=Hashable)


@dataclass
class _Stranger:
    slave_id: str | None
    took: bool = False  # it acknowledged bytes that it was sent


class AdmissionCore(Generic[AnyLink]):
    """Each event returns the link that must be closed, perhaps the new one, or None if all may stay. ``disconnected``
    comes after the close."""

    def __init__(self, max_known: int, max_strangers: int) -> None:
        """At most ``max_strangers`` connections greet, and as many are strangers; ``max_known`` ids are remembered."""
        self._max_known, self._max_strangers = max_known, max_strangers
        self._greeting: dict[AnyLink, str] = {}  # by link its host, oldest first
        self._strangers: dict[AnyLink, _Stranger] = {}
        self._known_slaves: dict[str, AnyLink | None] = {}  # None: it is away

    def __len__(self) -> int:
        return (
            len(self._greeting) + len(self._strangers) + sum(link is not None for link in self._known_slaves.values())
        )

    def is_known(self, link: AnyLink) -> bool:
        """Whether a link that has reported is a known slave's."""
        return link not in self._strangers

    def arrived(self, link: AnyLink, host: str) -> AnyLink | None:
        """A connection was accepted."""
        self._greeting[link] = host
        if len(self._greeting) <= self._max_strangers:
            return None
        crowded, _ = Counter(self._greeting.values()).most_common(1)[0]
        return next(greeting for greeting, of_host in self._greeting.items() if of_host == crowded)

    def started(self, link: AnyLink, slave_id: str | None, *, compared: bool) -> AnyLink | None:
        """A slave reported where its log ends. ``compared``: its log has bytes, and they equal the master's."""
        self._greeting.pop(link, None)
        if slave_id is not None and (compared or slave_id in self._known_slaves) and self._make_known(link, slave_id):
            return None
        self._strangers[link] = _Stranger(slave_id)
        if len(self._strangers) <= self._max_strangers:
            return None
        return next((old for old, stranger in self._strangers.items() if not stranger.took and old != link), link)

    def took(self, link: AnyLink) -> None:
        """A slave acknowledged bytes that it was sent."""
        stranger = self._strangers.get(link)
        if stranger is None:
            return
        stranger.took = True
        if stranger.slave_id is not None and self._make_known(link, stranger.slave_id):
            del self._strangers[link]

    def disconnected(self, link: AnyLink) -> None:
        """A connection ended."""
        self._greeting.pop(link, None)
        self._strangers.pop(link, None)
        for slave_id, current in self._known_slaves.items():
            if current == link:
                self._known_slaves[slave_id] = None

    def _make_known(self, link: AnyLink, slave_id: str) -> bool:
        """Remember the id of a slave. Returns False if there is no room for another one."""
        if slave_id not in self._known_slaves and len(self._known_slaves) >= self._max_known:
            away = next((other for other, current in self._known_slaves.items() if current is None), None)
            if away is None:
                return False
            del self._known_slaves[away]
        self._known_slaves.pop(slave_id, None)  # remembered as the newest
        self._known_slaves[slave_id] = link
        return True
