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

    def group_topics(self) -> dict[str, list[str]]:
        """The topics of each group, for a file or an answer."""
        return {group: list(topics) for group, topics in self._by_group.items()}

    @property
    def tables(self) -> tuple[dict[str, dict[str, str]], ...]:
        """All it has, for who frees it."""
        return self._by_topic, self._by_group

    def pop_topic(self, topic: str) -> Iterable[str]:
        """Forget it; its keys."""
        return _pop(self._by_topic, self._by_group, topic)

    def pop_group(self, group: str) -> Iterable[str]:
        """Forget it; its keys."""
        return _pop(self._by_group, self._by_topic, group)


def _pop(table: dict[str, dict[str, str]], other: dict[str, dict[str, str]], name: str) -> Iterable[str]:
    keys = table.pop(name, {})
    for each in keys:
        entries = other[each]
        del entries[name]
        if not entries:
            del other[each]
    return keys.values()
