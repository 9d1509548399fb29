"""The bodies of statistics of queues and groups, piece by piece.

There may be a million queues and offsets, and each piece may read the log: the caller gives others turns in between. A
piece is about one queue, as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import QueueLag, QueueStats
from tallystick.rocketmq.wire.values import MessageQueue, TopicConfig


def topic_pieces(parts: Parts, config: TopicConfig) -> Iterator[bytes]:
    """Yields the body ``TopicStats``: the offsets of a topic's queues."""
    name, store = config.name, parts.store

    def queues() -> Iterator[bytes]:
        for queue_id in range(max(config.read_queues, config.write_queues)):
            first, end = store.queue_range(name, queue_id)
            last_ms = store.stored_at(name, queue_id, end - 1) if end else 0
            yield _entry(MessageQueue(name, parts.identity.name, queue_id), QueueStats(first, end, last_ms))

    yield b'{"offsetTable":{'
    yield from separated(queues())
    yield b'},"topicPutTps":%s}' % dialect.write(parts.traffic.put_tps(name, parts.clock.wall_ms()))


def group_pieces(parts: Parts, group: str, topics: Sequence[str]) -> Iterator[bytes]:
    """Yields the body ``ConsumeStats``: how far behind a group is in these topics."""
    now_ms = parts.clock.wall_ms()
    tps = sum(parts.traffic.get_tps(topic, group, now_ms) for topic in topics)
    return _of_group(parts, group, topics, float(tps), _Sums())


def broker_pieces(parts: Parts, *, only_ordered: bool) -> Iterator[bytes]:
    """Yields the body ``ConsumeStatsList``: all groups and their topics; ``only_ordered``: the ordered topics alone."""
    sums = _Sums()
    yield b'{"brokerAddr":%s,"consumeStatsList":[' % dialect.write(parts.identity.address)
    for number, group in enumerate(list(parts.groups.all)):
        yield b"%s{%s:[" % (b"," if number else b"", dialect.write(group))
        is_first = True
        for topic in consumed_topics(parts, group, None):
            config = parts.topics.get(topic)
            if config is not None and (config.order or not only_ordered):
                yield b"" if is_first else b","
                tps = parts.traffic.get_tps(topic, group, parts.clock.wall_ms())
                yield from _of_group(parts, group, [topic], tps, sums)
                is_first = False
            else:
                yield b""  # thousands may be none of those: a stop between them
        yield b"]}"
    yield b'],"totalDiff":%d,"totalInflightDiff":%d}' % (sums.behind, sums.in_flight)


def consumed_topics(parts: Parts, group: str, topic: str | None) -> list[str]:
    """Returns the topics to report: those asked for, if members are connected only those of their subscriptions."""
    topics = [topic] if topic and topic.strip() else parts.offsets.topics_of(group)
    consumers = parts.clients.consumers(group)
    if consumers is None or not consumers.subscriptions:
        return topics
    return [topic for topic in topics if topic in consumers.subscriptions]


class _Sums:
    behind = in_flight = 0


def _of_group(parts: Parts, group: str, topics: Sequence[str], tps: float, sums: _Sums) -> Iterator[bytes]:
    def queues() -> Iterator[bytes]:
        for topic in topics:
            for queue, lag in _lags(parts, topic, group):
                sums.behind += lag.broker_offset - lag.consumer_offset
                sums.in_flight += lag.pull_offset - lag.consumer_offset
                yield _entry(queue, lag)

    yield b'{"consumeTps":%s,"offsetTable":{' % dialect.write(tps)
    yield from separated(queues())
    yield b"}}"


def _lags(parts: Parts, topic: str, group: str) -> Iterator[tuple[MessageQueue, QueueLag]]:
    config, offsets, store = parts.topics.get(topic), parts.offsets, parts.store
    for queue_id in range(config.read_queues if config is not None else 0):
        commit_offset = max(0, offsets.get(topic, group, queue_id) or 0)
        pull_offset = max(commit_offset, offsets.get_pull_offset(topic, group, queue_id) or 0)
        _, end = store.queue_range(topic, queue_id)
        last_ms = max(0, store.stored_at(topic, queue_id, commit_offset - 1)) if commit_offset else 0
        yield MessageQueue(topic, parts.identity.name, queue_id), QueueLag(end, commit_offset, pull_offset, last_ms)


def _entry(queue: MessageQueue, value: QueueStats | QueueLag) -> bytes:
    return b"%s:%s" % (dialect.write(queue), dialect.write(value))


def separated(entries: Iterable[bytes]) -> Iterator[bytes]:
    """Yields pieces with commas between them."""
    between = b""
    for entry in entries:
        yield between + entry
        between = b","
