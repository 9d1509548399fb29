"""From a topic's queues to partitions: which messages one Spark task reads, and all it needs to know for that. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.pipeline.cuts import Limits, Stretch, cut
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.wire.values import MessageQueue

MESSAGE_COST_BYTES = 64  # what a message weighs beside its record: columns in Arrow


@dataclass(frozen=True)
class QueueRange:
    """Messages of a queue, from the offset ``first`` to before ``end``."""

    queue: MessageQueue
    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class QueueExtent:
    """What a query wants of a queue. ``message_bytes``: the mean of some of its records, at least 1."""

    range: QueueRange
    message_bytes: int


@dataclass(frozen=True)
class BrokerSets:
    """Where the brokers are and how they are asked: a set's processes by broker id, with 0 for the master."""

    addresses: Mapping[str, Mapping[int, str]]
    group: str
    slave_first: bool = False
    security: BrokerSecurity | None = None  # names of files; none: what the worker's environment says


@dataclass(frozen=True)
class TopicPartition:
    """What one task reads, in order."""

    ranges: tuple[QueueRange, ...]
    brokers: BrokerSets
    decode: bool = True
    fail_on_data_loss: bool = True

    @property
    def count(self) -> int:
        return sum(range_.count for range_ in self.ranges)


def plan(
    extents: Sequence[QueueExtent],
    brokers: BrokerSets,
    limits: Limits,
    *,
    decode: bool = True,
    fail_on_data_loss: bool = True,
) -> list[TopicPartition]:
    """Partitions that hold each wanted message exactly once, in the order of ``extents``; none without messages."""
    stretches = [
        Stretch(extent.range.first, extent.range.end - 1, extent.message_bytes + MESSAGE_COST_BYTES)
        for extent in extents
    ]
    return [
        TopicPartition(
            tuple(QueueRange(extents[number].range.queue, piece.first, piece.last + 1) for number, piece in pieces),
            brokers,
            decode,
            fail_on_data_loss,
        )
        for pieces in cut(stretches, limits)
    ]
