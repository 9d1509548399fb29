"""The keys ``topic@group`` of a table of offsets by topic and by group: who forgets a topic touches only its keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

STEP_KEYS = 1000  # added within a millisecond


def split(key: str) -> tuple[str, str]:
    """Topic and group of a key."""
    topic, _, group = key.partition("@")
    return topic, group


class OffsetKeys:
    """Each key once, in the order in which they came."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._by_topic: dict[str, dict[str, str]] = {}  # group to key
        self._by_group: dict[str, dict[str, str]] = {}  # topic to key
        for key in keys:
            self.add(key)

    def adding(self, keys: Iterable[str]) -> Iterator[None]:
        """Add them, ``STEP_KEYS`` a step."""
        for count, key in enumerate(keys, 1):
            self.add(key)
            if count % STEP_KEYS == 0:
                yield

    def add(self, key: str) -> None:
        topic, group = split(key)
        self._by_topic.setdefault(topic, {})[group] = key
        self._by_group.setdefault(group, {})[topic] = key

    def topics_of(self, group: str) -> Iterable[str]:
        return self._by_group.get(group, {}).keys()

    def groups_of(self, topic: str) -> Iterable[str]:
        return self._by_topic.get(topic, {}).keys()

    def of_topic(self, topic: str) -> list[str]:
        """Its keys."""
        return list(self._by_topic.get(topic, {}).values())

    def of_group(self, group: str) -> list[str]:
        """Its keys."""
        return list(self._by_group.get(group, {}).values())

    def group_topics(self) -> dict[str, list[str]]:
        """The topics of each group, for a file or an answer."""
        return {group: list(topics) for group, topics in self._by_group.items()}

    def discard(self, keys: Iterable[str]) -> None:
        """Also keys that are not there."""
        for key in keys:
            topic, group = split(key)
            _discard(self._by_topic, topic, group)
            _discard(self._by_group, group, topic)


def _discard(table: dict[str, dict[str, str]], first: str, second: str) -> None:
    found = table.get(first)
    if found is not None:
        found.pop(second, None)
        if not found:
            del table[first]
