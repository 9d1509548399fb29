"""The broker's metrics under the names and labels of the original, for the dashboards that were made for it.

Source: ``BrokerMetricsConstant``, ``DefaultStoreMetricsConstant``. Numbers by topic or group are given for the first
``MAX_SERIES`` of them, in the order of their names, and lags for as many as have ``MAX_LAG_QUEUES`` queues together, as
the loop serves a scrape. What this broker does not have, such as the queues between the original's threads, has no
metric here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, TypeVar

from tallystick.errors import QueueRebuilding
from tallystick.rocketmq.broker.metrics import BrokerCounts
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.wire.values import RETRY_PREFIX
from tallystick.runtime.health import pause

if TYPE_CHECKING:
    from prometheus_client import Metric

MAX_SERIES = 1000
MAX_LAG_QUEUES = 10_000
STEP = 500  # members, or queues, that are looked at without a stop
_MEANINGS = {
    "rocketmq_broker_permission": "What the broker allows: 4 to read, 2 to write, added up",
    "rocketmq_topic_number": "Topics",
    "rocketmq_consumer_group_number": "Groups of consumers",
    "rocketmq_messages_in_total": "Messages stored, by topic",
    "rocketmq_throughput_in_total": "Bytes of the log that they took, by topic",
    "rocketmq_messages_out_total": "Messages sent to consumers, by topic and group",
    "rocketmq_throughput_out_total": "Bytes sent to consumers, by topic and group",
    "rocketmq_producer_connections": "Connected producers",
    "rocketmq_consumer_connections": "Connected consumers, by group",
    "rocketmq_consumer_lag_messages": "Messages that a group has not committed, by topic",
    "rocketmq_consumer_ready_messages": "The same: all can be pulled",
    "rocketmq_consumer_lag_latency": "Milliseconds since the oldest of them was stored",
    "rocketmq_storage_size": "Bytes of the log",
    "rocketmq_storage_flush_behind_bytes": "Bytes of the log not yet on the disk",
    "rocketmq_storage_dispatch_behind_bytes": "Bytes of the log not yet in a queue",
    "rocketmq_storage_message_reserve_time": "Milliseconds since the oldest message was stored",
}
_NODE = ["cluster", "node_type", "node_id"]
_STORAGE = [*_NODE, "storage_type", "storage_medium"]
_LAG = [*_NODE, "consumer_group", "topic", "is_retry", "is_system"]

T = TypeVar("T")
Series = tuple[list[str], float]


class DashboardCollector:
    """Collects the metrics of one broker from its parts."""

    def __init__(self, parts: Parts, counts: BrokerCounts) -> None:
        self._parts, self._counts = parts, counts
        self._node = [parts.identity.cluster, "broker", parts.identity.name]

    def collect(self) -> Iterator[Metric]:
        yield from self._broker()
        yield from self._messages()
        yield from self._clients()
        yield from self._lags()
        yield from self._storage()

    def _broker(self) -> Iterator[Metric]:
        parts = self._parts
        for name, value in (
            ("rocketmq_broker_permission", parts.settings.perm),
            ("rocketmq_topic_number", len(parts.topics.all)),
            ("rocketmq_consumer_group_number", len(parts.groups.all)),
        ):
            yield _gauge(name, _NODE, [(self._node, value)])

    def _messages(self) -> Iterator[Metric]:
        parts, labels = self._parts, [*_NODE, "topic", "message_type", "is_system"]

        def series(values: Iterable[tuple[str, int]]) -> list[Series]:
            return [([*self._node, topic, "normal", self._is_system(topic)], value) for topic, value in _first(values)]

        sizes = self._counts.bytes_by_topic
        for topic in [topic for topic in sizes if topic not in parts.topics.all]:
            del sizes[topic]
        yield _counter("rocketmq_messages_in_total", labels, series(parts.traffic.puts_by_topic()))
        yield _counter("rocketmq_throughput_in_total", labels, series(sizes.items()))
        labels = [*_NODE, "topic", "consumer_group", "is_retry", "is_system"]
        messages, throughput = list[Series](), list[Series]()
        for (topic, group), (count, size) in _first(parts.traffic.gets_by_group()):
            values = [*self._node, topic, group, _text(topic.startswith(RETRY_PREFIX)), self._is_system(topic)]
            messages.append((values, count))
            throughput.append((values, size))
        yield _counter("rocketmq_messages_out_total", labels, messages)
        yield _counter("rocketmq_throughput_out_total", labels, throughput)

    def _clients(self) -> Iterator[Metric]:
        clients = self._parts.clients
        producers, consumers, member_count = Counter[tuple[str, str]](), Counter[tuple[str, str, str, str]](), 0
        for members in list(clients.producer_groups.values()):
            for member in list(members.values()):
                producers[member.language.value.lower(), str(member.version)] += 1
                member_count += 1
                if member_count % STEP == 0:
                    yield pause()
        series = [([*self._node, *key, "remoting"], count) for key, count in _first(producers.items())]
        yield _gauge("rocketmq_producer_connections", [*_NODE, "language", "version", "protocol_type"], series)
        for group, group_consumers in list(clients.consumer_groups.items()):
            for member in list(group_consumers.members.values()):
                mode = _MODES.get(group_consumers.consume_type, "pull")
                consumers[group, member.language.value.lower(), str(member.version), mode] += 1
                member_count += 1
                if member_count % STEP == 0:
                    yield pause()
        labels = [*_NODE, "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"]
        series = [([*self._node, *key, "remoting", "false"], count) for key, count in _first(consumers.items())]
        yield _gauge("rocketmq_consumer_connections", labels, series)

    def _lags(self) -> Iterator[Metric]:
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        behind, ages = list[Series](), list[Series]()
        remaining_looks = MAX_SERIES  # messages looked at for their age
        remaining_queues, queue_count = MAX_LAG_QUEUES, 0
        for key in parts.offsets.first_committed(MAX_SERIES):
            offsets = parts.offsets.committed_offsets[key]
            remaining_queues -= len(offsets)
            if remaining_queues < 0:
                break
            topic, _, group = key.partition("@")
            values = [*self._node, group, topic, _text(topic.startswith(RETRY_PREFIX)), self._is_system(topic)]
            lag, oldest_ms = 0, now_ms
            for queue_id, offset in list(offsets.items()):
                queue_count += 1
                if queue_count % STEP == 0:
                    yield pause()
                end = parts.store.queue_range(topic, queue_id)[1]
                lag += max(0, end - offset)
                if offset < end and remaining_looks:
                    remaining_looks -= 1
                    with suppress(QueueRebuilding):
                        stored_ms = parts.store.stored_at(topic, queue_id, offset)
                        oldest_ms = min(oldest_ms, stored_ms) if stored_ms > 0 else oldest_ms
            behind.append((values, lag))
            ages.append((values, now_ms - oldest_ms))
        yield _gauge("rocketmq_consumer_lag_messages", _LAG, behind)
        yield _gauge("rocketmq_consumer_ready_messages", _LAG, behind)
        yield _gauge("rocketmq_consumer_lag_latency", _LAG, ages)

    def _storage(self) -> Iterator[Metric]:
        parts, store = self._parts, self._parts.store
        age_ms = parts.clock.wall_ms() - store.earliest_ms if store.end > store.first else 0
        for name, value in (
            ("rocketmq_storage_size", store.end - store.first),
            ("rocketmq_storage_flush_behind_bytes", store.end - store.flushed),
            ("rocketmq_storage_dispatch_behind_bytes", store.end - store.reput_offset),
            ("rocketmq_storage_message_reserve_time", max(0, age_ms)),
        ):
            yield _gauge(name, _STORAGE, [([*self._node, "local", "disk"], value)])

    def _is_system(self, topic: str) -> str:
        return _text(self._parts.topics.is_system(topic))


_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


def _text(value: bool) -> str:
    return "true" if value else "false"


def _first(values: Iterable[T]) -> list[T]:
    return nsmallest(MAX_SERIES, values)  # type: ignore[type-var]  # pairs that begin with names


def _gauge(name: str, labels: list[str], series: Iterable[Series]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _with_series(GaugeMetricFamily(name, _MEANINGS[name], labels=labels), series)


def _counter(name: str, labels: list[str], series: Iterable[Series]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return _with_series(CounterMetricFamily(name, _MEANINGS[name], labels=labels), series)


def _with_series(family: Any, series: Iterable[Series]) -> Metric:
    for labels, value in series:
        family.add_metric(labels, value)
    metric: Metric = family
    return metric
