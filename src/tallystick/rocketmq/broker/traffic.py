"""How many messages come and go: numbers that the original's tools show (``BrokerStatsManager``,
``StoreStatsService``).

Plain counters; times are wall clock in ms, as days matter too. A day begins at midnight UTC.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SLOT_MS = 10_000
SLOTS = 61  # ten minutes, and the slot that is not full yet
MINUTE_MS = 60_000
DAY_MS = 86_400_000
MAX_READERS = 20_000  # groups in topics that are counted each for itself; the one that came first is forgotten


class Rate:
    """Messages per second over some time up to ten minutes."""

    def __init__(self) -> None:
        self._slots: deque[list[int]] = deque(maxlen=SLOTS)  # [start in ms, messages], oldest first
        self.total = self.total_bytes = 0

    def add(self, count: int, now_ms: int, size: int = 0) -> None:
        """``size``: their bytes, where somebody asks for them."""
        self.total += count
        self.total_bytes += size
        start_ms = now_ms - now_ms % SLOT_MS
        if self._slots and start_ms <= self._slots[-1][0]:  # earlier: the clock stepped back
            self._slots[-1][1] += count
        else:
            self._slots.append([start_ms, count])

    def per_second(self, now_ms: int, over_ms: int = MINUTE_MS) -> float:
        since = now_ms - over_ms
        return sum(count for start_ms, count in self._slots if start_ms > since) * 1000 / over_ms


@dataclass
class Daily:
    """A total, and its values when today and yesterday began."""

    total: int = 0
    today: int = 0
    yesterday: int = 0
    day: int | None = None

    def add(self, count: int, now_ms: int) -> None:
        self.turn(now_ms)
        self.total += count

    def turn(self, now_ms: int) -> None:
        day = now_ms // DAY_MS
        if self.day is not None and day > self.day:
            self.yesterday, self.today = self.today if day == self.day + 1 else self.total, self.total
        self.day = day


class Traffic:
    """The traffic of one broker. ``stored`` and ``read`` are called once a tick and queue, not once a message."""

    def __init__(self) -> None:
        self.puts, self.gets = Daily(), Daily()
        self.put_rate, self.get_rate = Rate(), Rate()
        self.pull_rate, self.miss_rate = Rate(), Rate()  # of pulls, and of those that got no message
        self._topics: dict[str, Rate] = {}
        self._groups: dict[tuple[str, str], Rate] = {}

    def stored(self, topic: str, count: int, now_ms: int) -> None:
        """Messages that producers sent became readable."""
        self.puts.add(count, now_ms)
        self.put_rate.add(count, now_ms)
        self._topics.setdefault(topic, Rate()).add(count, now_ms)

    def pulled(self, *, has_messages: bool, now_ms: int) -> None:
        """A pull got its response."""
        self.pull_rate.add(1, now_ms)
        if not has_messages:
            self.miss_rate.add(1, now_ms)

    def read(self, topic: str, group: str, count: int, size: int, now_ms: int) -> None:
        """A group got messages, ``size`` bytes of the log."""
        self.gets.add(count, now_ms)
        self.get_rate.add(count, now_ms)
        rate = self._groups.get((topic, group))
        if rate is None:
            if len(self._groups) >= MAX_READERS:
                del self._groups[next(iter(self._groups))]
            rate = self._groups[topic, group] = Rate()
        rate.add(count, now_ms, size)

    def put_tps(self, topic: str, now_ms: int) -> float:
        rate = self._topics.get(topic)
        return rate.per_second(now_ms) if rate else 0.0

    def get_tps(self, topic: str, group: str, now_ms: int) -> float:
        rate = self._groups.get((topic, group))
        return rate.per_second(now_ms) if rate else 0.0

    def puts_by_topic(self) -> Iterator[tuple[str, int]]:
        """Messages since the start."""
        return ((topic, rate.total) for topic, rate in self._topics.items())

    def gets_by_group(self) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
        """Messages and bytes since the start, by topic and group."""
        return ((key, (rate.total, rate.total_bytes)) for key, rate in self._groups.items())

    def forget_topics(self, topics: Iterable[str]) -> None:
        deleted_topics = frozenset(topics)
        for topic in deleted_topics:
            self._topics.pop(topic, None)
        for key in [key for key in self._groups if key[0] in deleted_topics]:
            del self._groups[key]

    def forget_group(self, group: str) -> None:
        for key in [key for key in self._groups if key[1] == group]:
            del self._groups[key]
