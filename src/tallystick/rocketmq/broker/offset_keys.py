"""The keys ``topic@group`` of a table of offsets, by topic and by group: to forget a topic touches only its keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest

STEP_KEYS = 1000  # added within a millisecond


def split(key: str) -> tuple[str, str]:
    """Returns the topic and the group of a key."""
    topic, _, group = key.partition("@")
    return topic, group


class OffsetKeys:
    """A set of keys, in the order in which they came."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._by_topic: dict[str, dict[str, str]] = {}  # group to key
        self._by_group: dict[str, dict[str, str]] = {}  # topic to key
        for key in keys:
            self.add(key)

    def adding(self, keys: Iterable[str]) -> Iterator[None]:
        """Add keys, ``STEP_KEYS`` a step."""
        for count, key in enumerate(keys, 1):
            self.add(key)
            if count % STEP_KEYS == 0:
                yield

    def add(self, key: str) -> None:
        topic, group = split(key)
        self._by_topic.setdefault(topic, {})[group] = key
        self._by_group.setdefault(group, {})[topic] = key

    def topics_of(self, group: str) -> Collection[str]:
        return self._by_group.get(group, {}).keys()

    def groups_of(self, topic: str) -> Iterable[str]:
        return self._by_topic.get(topic, {}).keys()

    def group_topics(self) -> dict[str, Collection[str]]:
        """Returns the topics of each group, for a file or a response. It is no copy, as there may be a million."""
        return {group: topics.keys() for group, topics in self._by_group.items()}

    def first(self, most: int) -> list[str]:
        """Returns at most ``most`` keys in the order of topics, then of groups."""
        keys: list[str] = []
        for topic in nsmallest(most, self._by_topic):
            groups = self._by_topic[topic]
            keys += [groups[group] for group in nsmallest(most - len(keys), groups)]
            if len(keys) == most:
                break
        return keys

    def of_topic(self, topic: str) -> list[str]:
        return list(self._by_topic.get(topic, {}).values())

    def of_group(self, group: str) -> list[str]:
        return list(self._by_group.get(group, {}).values())

    def discard(self, key: str) -> None:
        """Remove a key, if it is there."""
        topic, group = split(key)
        for table, name, other in ((self._by_topic, topic, group), (self._by_group, group, topic)):
            keys = table.get(name, {})
            keys.pop(other, None)
            if not keys:
                table.pop(name, None)

    @property
    def tables(self) -> tuple[dict[str, dict[str, str]], ...]:
        """Returns all its tables, to be freed in steps."""
        return self._by_topic, self._by_group
