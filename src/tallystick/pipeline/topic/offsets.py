"""How far a streaming query of topics is, as Spark's checkpoint keeps it. Pure.

::

    {"v": 1, "q": {"topic": {"broker": {"0": [12, 7, 9]}}}}

Of each queue the offset that is read next: what is before is read, so an end is not part of its batch. Queues of one
broker whose numbers follow each other share a list, under the number of the first: some ten bytes a queue. Topics,
brokers and numbers ascend, so that equal offsets have equal texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.pipeline.offsets import Offset, content_of, stamped
from tallystick.pipeline.topic.schema import FORMAT
from tallystick.rocketmq.wire.values import MessageQueue

Positions = Mapping[MessageQueue, int]


def to_offset(positions: Positions) -> Offset:
    """Returns what Spark stores as JSON."""
    topics: dict[str, dict[str, dict[str, list[int]]]] = {}
    former: MessageQueue | None = None
    run: list[int] = []
    for queue, offset in sorted(positions.items()):
        if former is None or (queue.topic, queue.broker, queue.queue_id - 1) != (
            former.topic,
            former.broker,
            former.queue_id,
        ):
            run = topics.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = []
        run.append(offset)
        former = queue
    return stamped("q", topics)


def from_offset(offset: Any) -> dict[MessageQueue, int]:
    """Raises UsageError for one that this version did not write."""
    return content_of(offset, "q", FORMAT, _positions)


def _positions(content: Any) -> dict[MessageQueue, int]:
    positions = {}
    for topic, brokers in content.items():
        for broker, runs in brokers.items():
            for first, run in runs.items():
                for queue_id, offset in enumerate(run, int(first)):
                    if type(offset) is not int or offset < 0:
                        raise ValueError
                    positions[MessageQueue(str(topic), str(broker), queue_id)] = offset
    return positions
