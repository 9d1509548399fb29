"""What a scrape of a broker shows."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest

from tallystick.rocketmq.broker.locks import QueueLocksCore
from tallystick.rocketmq.broker.metrics import BrokerCounts, BrokerReadings, SlaveLag, registry
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.events import Events


class Peer:
    peer = "127.0.0.1:4711"

    def tell_unsent(self) -> None: ...

    def condemn(self, reason: str) -> None: ...


def held() -> Memory:
    memory = Memory(SystemClock(), Events(), 1000, 60.0)
    for size in (900, 500):
        memory.unfinished(Peer(), size, progress=False)
    return memory


def page(counts: BrokerCounts, *slaves: SlaveLag, age_s: float | None = None, rival: bool = False) -> str:
    view = BrokerReadings(
        counts=counts,
        log_range=lambda: (10, 70, 100),
        dispatched=lambda: 95,
        writeable=lambda: True,
        disk_used_percent=lambda: 12.5,
        connections=lambda: 3,
        held_pulls=lambda: 2,
        locks=QueueLocksCore(),
        malformed=lambda: 1,
        sinks=lambda: (5, 6),
        memory=held(),
        slaves=lambda: list(slaves),
        metadata_age_s=lambda: age_s,
        has_rival=lambda: rival,
        names=lambda: {"broker": "broker-a", "id": "1", "role": "SLAVE"},
    )
    return generate_latest(registry(view)).decode()


async def test_counters_and_the_log() -> None:
    counts = BrokerCounts(messages_in=5, bytes_in=600, sends_refused=1, messages_out=4, bytes_out=500, pulls=9)
    counts.late[PutStatus.FLUSH_SLAVE_TIMEOUT] = 2
    shown = page(counts)
    for line in (
        "broker_messages_in_total 5.0", "broker_bytes_in_total 600.0", "broker_sends_refused_total 1.0",
        "broker_messages_out_total 4.0", "broker_bytes_out_total 500.0", "broker_pulls_total 9.0",
        'broker_sends_late_total{status="FLUSH_SLAVE_TIMEOUT"} 2.0',
        'broker_sends_late_total{status="SLAVE_NOT_AVAILABLE"} 0.0', "broker_log_first_offset 10.0",
        "broker_log_end_offset 100.0", "broker_log_unsynced_bytes 30.0", "broker_log_undispatched_bytes 5.0",
        "broker_writeable 1.0", "broker_disk_used_percent 12.5", "broker_connections 3.0", "broker_held_pulls 2.0",
        "broker_queue_locks 0.0", "broker_queue_locks_refused_total 0.0",
        "broker_sink_partitions 5.0", "broker_sink_partitions_refused_total 6.0", "broker_brief_pulls_total 0.0",
        "broker_malformed_total 1.0", 'broker_held_bytes{kind="unfinished"} 500.0',
        'broker_held_bytes{kind="unsent"} 0.0', "broker_connections_dropped_total 1.0",
        "broker_has_rival 0.0", 'broker_info{broker="broker-a",id="1",role="SLAVE"} 1.0',
        "tallystick_build_info{", "process_cpu_seconds_total",
    ):  # fmt: skip
        assert line in shown, line
    assert "broker_metadata_age_seconds" not in shown
    assert "broker_has_rival 1.0" in page(counts, rival=True)


async def test_replication_of_a_master_and_of_a_slave() -> None:
    shown = page(BrokerCounts(), SlaveLag("b0:1", True, 30, 0.5), SlaveLag("b0:2", False, 10**9, 60.0), age_s=4.0)
    for line in (
        'broker_slave_in_sync{slave="b0:1"} 1.0',
        'broker_slave_in_sync{slave="b0:2"} 0.0',
        'broker_slave_behind_bytes{slave="b0:2"} 1e+09',
        'broker_slave_behind_seconds{slave="b0:1"} 0.5',
        "broker_metadata_age_seconds 4.0",
    ):
        assert line in shown, line
