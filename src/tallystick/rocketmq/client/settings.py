"""Settings of producers and consumers, with the original's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.runtime.arguments import check_settings, items, number, optional

_MAY_BE_ZERO = ("send_retries", "compress_above_bytes", "gather_bytes", "topic_wait_s")


@dataclass(frozen=True)
class BrokerClientSettings:
    """Time-outs and bounds of a client of topics, a line each, with units in the names and the original's in brackets.

    Raises UsageError for values that cannot work.
    """

    route_refresh_s: float = 30.0  # how old a topic's route may get (pollNameServerInterval)
    heartbeat_s: float = 30.0  # brokers forget a silent client after 120 s (heartbeatBrokerInterval)
    request_timeout_s: float = 3.0  # of anything but sends and pulls (mqClientApiTimeout)
    send_timeout_s: float = 6.0  # of a send with all its retries: above a broker's slaveTimeout (sendMsgTimeout)
    topic_wait_s: float = 5.0  # for a topic that no name server knows: a new one, or after a name server's restart
    send_retries: int = 2  # after a failed attempt, at another broker if there is one (retryTimesWhenSendFailed)
    max_message_bytes: int = 4 * 1024 * 1024  # of one body, or of a batch (maxMessageSize)
    max_inflight_bytes: int = 32 * 1024 * 1024  # unanswered bodies of one producer; beyond it send() waits
    compress_above_bytes: int = 0  # bodies as long as this are compressed by zlib; 0: none (compressMsgBodyOverHowmuch)
    gather_bytes: int = 0  # of the sends of one turn of the loop that go as one batch; 0: each alone (batchMaxBytes)
    new_topic_queues: int = 4  # of a topic that the first send creates (defaultTopicQueueNums)
    pull_count: int = 32  # messages of one pull (pullBatchSize)
    pull_bytes: int = 256 * 1024  # of one pull (pullThreshold… maxMsgBytes)
    pull_hold_s: float = 15.0  # how long a broker may hold a pull that finds nothing (brokerSuspendMaxTimeMillis)
    pull_timeout_s: float = 30.0  # (consumerTimeoutMillisWhenSuspend)
    max_unacked_bytes: int = 8 * 1024 * 1024  # pulled by one consumer and not acknowledged; beyond it pulls no more
    queue_max_unacked: int = 1000  # messages of one queue, likewise (pullThresholdForQueue)
    queue_max_span: int = 2000  # offsets from the lowest unacknowledged on, likewise (consumeConcurrentlyMaxSpan)
    nack_delays_s: tuple[float, ...] = (1.0, 5.0, 10.0, 30.0, 60.0)  # of a message's first, second, … delivery again
    commit_interval_s: float = 5.0  # (autoCommitIntervalMillis)
    rebalance_s: float = 20.0  # how often a group's members share out the queues even when nobody tells them to
    down_s: float = 3.0  # a broker that failed is asked again after this, while another one has the same queues

    security: BrokerSecurity | None = None  # keys and TLS; none: what the environment says

    def __post_init__(self) -> None:
        check_settings(self, may_be_zero=_MAY_BE_ZERO)
        optional(self.security, BrokerSecurity, "security")
        if not [number(delay_s, "a delay in nack_delays_s") for delay_s in items(self.nack_delays_s, "nack_delays_s")]:
            raise UsageError("nack_delays_s has one delay at least")
        if self.gather_bytes > self.max_message_bytes:
            raise UsageError("gather_bytes is not above max_message_bytes", value=self.gather_bytes)
        if self.pull_timeout_s <= self.pull_hold_s:
            raise UsageError("pull_timeout_s must be above pull_hold_s", value=self.pull_timeout_s)
