from __future__ import annotations

import pickle

from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.topic.plan import MESSAGE_COST_BYTES, BrokerSets, QueueExtent, QueueRange, TopicPartition, plan
from tallystick.rocketmq.wire.values import MessageQueue

SETS = BrokerSets({"b": {0: "h:1", 1: "h:2"}}, "G")


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "b", number)


def test_small_queues_share_one_partition_in_order() -> None:
    ranges = tuple(QueueRange(queue(n), 5, 15) for n in range(8))
    (partition,) = plan([QueueExtent(r, 100) for r in ranges], SETS, Limits())
    assert partition == TopicPartition(ranges, SETS, True) and partition.count == 80


def test_a_large_queue_is_cut_by_bytes() -> None:
    extent = QueueExtent(QueueRange(queue(0), 10, 40), 1000 - MESSAGE_COST_BYTES)
    partitions = plan([extent], SETS, Limits(max_partition_bytes=10_000), decode=False, fail_on_data_loss=False)
    assert [p.ranges for p in partitions] == [(QueueRange(queue(0), n, n + 10),) for n in (10, 20, 30)]
    assert all(p.brokers is SETS and not p.decode and not p.fail_on_data_loss for p in partitions)


def test_nothing_to_read_is_no_partition() -> None:
    assert plan([], SETS, Limits()) == []


def test_a_partition_survives_pickling() -> None:
    (partition,) = plan([QueueExtent(QueueRange(queue(0), 0, 1), 1)], SETS, Limits())
    assert pickle.loads(pickle.dumps(partition)) == partition
