"""The counters of a broker, and its metrics.

The hot paths add to plain numbers once per message, pull or tick; a scrape turns them into metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.rocketmq.broker.locks import QueueLocksCore
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.runtime.health import process_registry

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.registry import Collector


@dataclass(slots=True)
class BrokerCounts:
    """Counts since the start."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_by_topic: dict[str, int] = field(default_factory=dict)  # those
    sends_refused: int = 0
    late: dict[PutStatus, int] = field(default_factory=dict)  # stored, but not as safe as asked for
    messages_out: int = 0
    bytes_out: int = 0
    pulls: int = 0
    brief_pulls: int = 0  # that waited less than they wanted to, as there were too many


@dataclass(frozen=True)
class SlaveLag:
    """One slave of a master, or on a slave its own link to the master."""

    slave: str
    in_sync: bool
    behind_bytes: int
    behind_s: float


@dataclass(frozen=True)
class BrokerReadings:
    """The values that a scrape reads from the running broker."""

    counts: BrokerCounts
    log_range: Callable[[], tuple[int, int, int]]  # first, flushed, end
    dispatched: Callable[[], int]
    writeable: Callable[[], bool]
    disk_used_percent: Callable[[], float]
    connections: Callable[[], int]
    held_pulls: Callable[[], int]
    locks: QueueLocksCore
    malformed: Callable[[], int]
    sinks: Callable[[], tuple[int, int]]  # partitions in the table, and those refused that a log had
    memory: Memory  # of the server
    slaves: Callable[[], list[SlaveLag]]
    metadata_age_s: Callable[[], float | None]  # of a slave's copy of its master's tables; None: a master
    has_rival: Callable[[], bool]
    names: Callable[[], Mapping[str, str]]  # the labels of ``broker_info``


class _BrokerCollector:
    def __init__(self, view: BrokerReadings) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        yield _info(self._view.names())
        yield from _messages(self._view.counts)
        yield from _log(self._view)
        yield from _connections(self._view)
        yield from _sinks(self._view.sinks())
        yield from _replication(self._view)


def _info(names: Mapping[str, str]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    text = "Who this is: always 1. To be joined with the others, as in `… and on(instance) broker_info{role=…}`"
    info = GaugeMetricFamily("broker_info", text, labels=list(names))
    info.add_metric(list(names.values()), 1)
    return info


def _messages(counts: BrokerCounts) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, value in (
        ("broker_messages_in_total", "Messages stored for producers", counts.messages_in),
        ("broker_bytes_in_total", "Bytes of the log that they took", counts.bytes_in),
        ("broker_sends_refused_total", "Sends that stored nothing", counts.sends_refused),
        ("broker_messages_out_total", "Messages sent to consumers", counts.messages_out),
        ("broker_bytes_out_total", "Bytes sent to consumers", counts.bytes_out),
        ("broker_pulls_total", "Pulls answered", counts.pulls),
        ("broker_brief_pulls_total", "Pulls that wait briefly, as there are too many", counts.brief_pulls),
    ):
        yield CounterMetricFamily(name, text, value)
    late = CounterMetricFamily(
        "broker_sends_late_total", "Sends stored, but not as safe as asked for", labels=["status"]
    )
    for status in (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE):
        late.add_metric([status.name], counts.late.get(status, 0))
    yield late


def _log(view: BrokerReadings) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    first, flushed, end = view.log_range()
    for name, text, value in (
        ("broker_log_first_offset", "Physical offset of the oldest byte", first),
        ("broker_log_end_offset", "Physical offset after the newest byte", end),
        ("broker_log_unsynced_bytes", "Bytes not yet on the disk", end - flushed),
        ("broker_log_undispatched_bytes", "Bytes not yet in a queue", end - view.dispatched()),
        ("broker_writeable", "1: takes messages", int(view.writeable())),
        ("broker_disk_used_percent", "Of the disk of the store", view.disk_used_percent()),
    ):
        yield GaugeMetricFamily(name, text, value)


def _connections(view: BrokerReadings) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield GaugeMetricFamily("broker_connections", "Open connections of clients", view.connections())
    yield GaugeMetricFamily("broker_held_pulls", "Pulls that wait for a message", view.held_pulls())
    yield GaugeMetricFamily("broker_queue_locks", "Queues that ordered consumers have for themselves", len(view.locks))
    left_out = view.locks.left_out
    yield CounterMetricFamily("broker_queue_locks_refused_total", "Locks for which there was no room", left_out)
    yield CounterMetricFamily("broker_malformed_total", "Connections closed for garbage", view.malformed())
    memory_family = GaugeMetricFamily(
        "broker_held_bytes", "Held in memory for clients: of answers, of requests", labels=["kind"]
    )
    memory_family.add_metric(["unsent"], view.memory.unsent_bytes)
    memory_family.add_metric(["unfinished"], view.memory.unfinished_bytes)
    memory_family.add_metric(["kept"], view.memory.kept_bytes)
    yield memory_family
    yield CounterMetricFamily(
        "broker_connections_dropped_total",
        "Connections closed for what they made it hold",
        view.memory.dropped_connections,
    )


def _sinks(counts: tuple[int, int]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    count, refused_count = counts
    yield GaugeMetricFamily("broker_sink_partitions", "Partitions of sinks whose messages are stored once", count)
    text = "Partitions of sinks that the log, or the master's table, has, and for which there was no room"
    yield CounterMetricFamily("broker_sink_partitions_refused_total", text, refused_count)


def _replication(view: BrokerReadings) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    yield GaugeMetricFamily("broker_has_rival", "1: another one is registered by its id", int(view.has_rival()))
    slaves = view.slaves()
    for name, text, values in (
        ("broker_slave_in_sync", "1: near enough to be waited for", [float(slave.in_sync) for slave in slaves]),
        (
            "broker_slave_behind_bytes",
            "Bytes of the log that it lacks",
            [float(slave.behind_bytes) for slave in slaves],
        ),
        ("broker_slave_behind_seconds", "Age of the first byte that it lacks", [slave.behind_s for slave in slaves]),
    ):
        family = GaugeMetricFamily(name, text, labels=["slave"])
        for slave, value in zip(slaves, values, strict=True):
            family.add_metric([slave.slave], value)
        yield family
    age = view.metadata_age_s()
    if age is not None:
        yield GaugeMetricFamily("broker_metadata_age_seconds", "Since the master's tables were last copied", age)


def registry(view: BrokerReadings, *others: Collector) -> CollectorRegistry:
    """Returns the registry of all metrics that a scrape of this broker shows, those of its process included."""
    return process_registry(_BrokerCollector(view), *others)
