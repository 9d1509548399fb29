"""A consumer's subscription to a topic: all messages, or those with one of some tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.codec.records import java_hash
from tallystick.errors import UsageError
from tallystick.rocketmq.wire.values import Subscription
from tallystick.runtime.arguments import items, text

EVERYTHING = "*"


@dataclass(frozen=True)
class TagFilter:
    """Brokers compare hashes of tags, which may collide: ``matches`` compares the tags themselves."""

    expression: str
    tags: frozenset[str]  # empty: everything

    @classmethod
    def parse(cls, expression: str) -> TagFilter:
        """``*``, or tags separated by ``||``. Raises UsageError for neither."""
        if text(expression, "tags").strip() in ("", EVERYTHING):
            return cls(EVERYTHING, frozenset())
        tags = [tag.strip() for tag in expression.split("||")]
        if not all(tags):
            raise UsageError("tags are separated by ||, none of them empty", tags=expression)
        return cls(" || ".join(tags), frozenset(tags))

    def matches(self, tags: str | None) -> bool:
        return not self.tags or tags in self.tags

    def subscription(self, topic: str, version: int) -> Subscription:
        """As a heartbeat says it."""
        tags = tuple(sorted(self.tags))
        return Subscription(topic, self.expression, tags, tuple(java_hash(tag) for tag in tags), version)


ALL_TAGS = TagFilter(EVERYTHING, frozenset())


def filters_of(topic: str | Sequence[str] | Mapping[str, str], tags: str) -> dict[str, TagFilter]:
    """Returns the filters by topic: of one topic, of several with the same tags, or of a mapping from topic to tags.
    Raises UsageError."""
    if isinstance(topic, Mapping):
        if tags != EVERYTHING:
            raise UsageError("a mapping of topics says itself which tags each has", tags=tags)
        expressions = dict(topic)
    else:
        expressions = dict.fromkeys(
            [topic]
            if isinstance(topic, str)
            else items(topic, "topic", "a name, a list of names, or a dict from names to tags"),
            tags,
        )
    if not expressions:
        raise UsageError("a consumer reads one topic at least")
    return {name: TagFilter.parse(expression) for name, expression in expressions.items()}
