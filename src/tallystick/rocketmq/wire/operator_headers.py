"""The typed headers of what an operator's tools ask a broker; see ``headers.py``."""

from __future__ import annotations

from tallystick.rocketmq.wire.headers import Header
from tallystick.rocketmq.wire.values import Int32, Int64


class ForgetSinkHeader(Header, frozen=True, kw_only=True):
    """Of FORGET_SINK, ours alone. ``application`` is as ``SinkIdentity`` has it."""

    topic: str
    application: str
    force: bool = False


class ResetOffsetHeader(Header, frozen=True, kw_only=True):
    """Of INVOKE_BROKER_TO_RESET_OFFSET. A negative queue is all of them; a negative time is the end of the queue."""

    topic: str
    group: str
    timestamp: Int64
    queue_id: Int32 = -1
    offset: Int64 | None = None


class RunningInfoHeader(Header, frozen=True):
    """Of GET_CONSUMER_RUNNING_INFO; it goes on to the consumer as it came."""

    consumer_group: str
    client_id: str


class ConsumeStatsHeader(Header, frozen=True):
    consumer_group: str
    topic: str | None = None


class BrokerConsumeStatsHeader(Header, frozen=True):
    """Of GET_BROKER_CONSUME_STATS."""

    is_order: bool


class QueryConsumeQueueHeader(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None
