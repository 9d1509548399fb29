"""Checks of the arguments of producers and consumers. Each function raises UsageError."""

from __future__ import annotations

import re

from tallystick.errors import UsageError
from tallystick.rocketmq.client.subscription import EVERYTHING
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.system_properties import SYSTEM_PROPERTIES
from tallystick.rocketmq.wire.values import DLQ_PREFIX, RETRY_PREFIX, MessageQueue
from tallystick.runtime.arguments import MAX_INT32, MAX_INT64, MIN_INT32, instance, items, mapping, text, whole

MAX_TOPIC_CHARS = 127
MAX_INNER_TOPIC_CHARS = 255  # of a group's retry and dead-letter topics
_TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")  # as brokers have it
_GROUP_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")  # likewise
FROM_WHERE = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


def check_topic(name: str) -> None:
    """Check a topic's name, as brokers do: they refuse others, and a consumer would wait for its route."""
    is_inner = text(name, "a topic's name").startswith((RETRY_PREFIX, DLQ_PREFIX))
    most = MAX_INNER_TOPIC_CHARS if is_inner else MAX_TOPIC_CHARS
    if len(name) > most or not _TOPIC_NAME.fullmatch(name):
        raise UsageError(f"a topic's name has 1 to {most} letters, digits and % | - _", topic=name)


def check_group(group: str) -> str:
    """Check a group's name, as brokers do: they refuse the heartbeats of others, and a consumer would wait for ever.
    Returns it."""
    if not _GROUP_NAME.fullmatch(text(group, "a group's name")):
        raise UsageError("a group's name has 1 to 255 letters, digits and % | - _", group=group)
    return group


def check_queue(queue: MessageQueue, topic: str | None = None) -> MessageQueue:
    """Check a queue, and that it is one of ``topic`` unless that is None. Returns it."""
    whole(instance(queue, MessageQueue, "queue").queue_id, "the number of a queue", most=MAX_INT32)
    text(queue.topic, "a queue's topic")
    text(queue.broker, "a queue's broker")
    if topic is not None and queue.topic != topic:
        raise UsageError("the queue is of another topic", topic=topic, queue=queue)
    return queue


def check_place(where: str | int, what: str) -> str | int:
    """Check a place in a queue: ``first``, ``last`` or a time in ms. Returns it."""
    if isinstance(where, str) and where in FROM_WHERE:
        return where
    try:
        return whole(where, what, most=MAX_INT64)
    except UsageError as error:
        raise UsageError(f"{what} is first, last, or a time in ms", **error.fields) from None


def check_tag(tag: str) -> None:
    """Check one tag, as a consumer can choose it: ``A || B`` is a choice of two, and blanks around a tag are none of
    it."""
    if text(tag, "tags") and ("||" in tag or tag == EVERYTHING or tag != tag.strip()):
        raise UsageError("tags is one tag: without ||, without blanks around it, and not *", tags=tag)


def check_message(message: Message) -> None:
    """Check all but the topic and body: what is not text would be stored as whatever Python shows of it."""
    if message.tags is not None:
        check_tag(message.tags)
    for key in items(message.keys, "keys"):
        text(key, "a key")
    for name, value in mapping(message.properties, "properties").items():
        if text(name, "a property's name") in SYSTEM_PROPERTIES:
            raise UsageError(f"the property {name} is the system's: leave it out")
        text(value, f"the property {name}")
    whole(message.flag, "flag", least=MIN_INT32, most=MAX_INT32)
    instance(message.wait_stored, bool, "wait_stored")
