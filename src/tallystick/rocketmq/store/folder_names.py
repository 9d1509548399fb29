"""Which topics and queues may have a folder: their names in a slave's log, and from its master, are not its own."""

from __future__ import annotations

from tallystick.rocketmq.wire.values import MAX_QUEUES

MAX_TOPIC_BYTES = 255  # the longest name of a folder, too


def may_be_folder(topic: str, queue_id: int) -> bool:
    """Whether ``consumequeue/<topic>/<queue id>`` is a folder there and not somewhere else.

    Wider than what a broker lets clients name a topic: an original master may have kept names that it takes no more.
    """
    return (
        0 <= queue_id < MAX_QUEUES
        and topic not in ("", ".", "..")
        and "/" not in topic
        and "\0" not in topic
        and "\ufffd" not in topic  # was no text
        and len(topic.encode(errors="replace")) <= MAX_TOPIC_BYTES
    )
