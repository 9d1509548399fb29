"""A scrape under the original's names: what its dashboards query."""

from __future__ import annotations

from typing import Never, cast

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from support.admin_desk import Caller, Desk
from tallystick.rocketmq.broker import dashboard_metrics
from tallystick.rocketmq.broker.dashboard_metrics import DashboardCollector
from tallystick.rocketmq.broker.metrics import BrokerCounts
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, Language, ProducerGroup, TopicConfig
from tallystick.runtime.health import HealthPages


def page(desk: Desk, counts: BrokerCounts | None = None) -> list[str]:
    found = CollectorRegistry()
    found.register(DashboardCollector(desk.parts, counts or BrokerCounts()))
    return generate_latest(found).decode().splitlines()


def test_topics_groups_clients_and_the_log() -> None:
    desk = Desk()
    desk.tables.topics.put(TopicConfig("T", 1, 1))
    for number in range(5):
        desk.shelf.send(b"%d" % number, topic="T")
    desk.shelf.settle()
    desk.parts.traffic.stored("T", 5, 0)
    desk.parts.traffic.read("T", "G", 2, 300, 0)
    desk.tables.offsets.commit("T", "G", 0, 2)
    beat = Heartbeat("c", (ProducerGroup("P"),), (ConsumerGroup("G", consume_type="CONSUME_PASSIVELY"),))
    desk.parts.clients.heartbeat_received(cast("Link", Caller()), beat, beat.consumers, Language.JAVA, 513, 0.0)
    shown = page(desk, BrokerCounts(bytes_by_topic={"T": 700, "gone": 9}))
    node, where = 'node_id="b0",node_type="broker"', 'topic="T"'
    group = f'cluster="c0",consumer_group="G",is_retry="false",is_system="false",{node},{where}'
    for line in (
        f'rocketmq_messages_in_total{{cluster="c0",is_system="false",message_type="normal",{node},{where}}} 5.0',
        f'rocketmq_throughput_in_total{{cluster="c0",is_system="false",message_type="normal",{node},{where}}} 700.0',
        f"rocketmq_messages_out_total{{{group}}} 2.0",
        f"rocketmq_throughput_out_total{{{group}}} 300.0",
        f"rocketmq_consumer_lag_messages{{{group}}} 3.0",
        f'rocketmq_broker_permission{{cluster="c0",{node}}} 6.0',
    ):
        assert line in shown, (line, shown)
    text = "\n".join(shown)
    for name in (
        'language="java"',
        "rocketmq_throughput_in_total",
        "rocketmq_consumer_lag_latency",
        "rocketmq_storage_size{",
        "rocketmq_storage_flush_behind_bytes",
        'consume_mode="push"',
        "rocketmq_producer_connections{",
    ):
        assert name in text, name
    assert "gone" not in text


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_metrics, "MAX_SERIES", 3)
    desk = Desk()
    for number in range(10):
        desk.parts.traffic.stored(f"T{number}", 1, 0)
        desk.tables.offsets.commit("T", f"G{number}", 0, 0)
    shown = page(desk)
    assert sum(line.startswith("rocketmq_messages_in_total{") for line in shown) == 3
    assert sum(line.startswith("rocketmq_consumer_lag_messages{") for line in shown) == 3


def test_very_many_members_and_queues_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 memberships were one step of 0.26 s; they come and go in between."""
    monkeypatch.setattr(dashboard_metrics, "STEP", 10)
    desk = Desk()
    clients, links = desk.parts.clients, [cast("Link", Caller()) for _ in range(3)]
    names = [str(number) for number in range(50)]
    said = Heartbeat("c", tuple(map(ProducerGroup, names)), tuple(map(ConsumerGroup, names)))
    for link in links:
        clients.heartbeat_received(link, said, said.consumers, Language.JAVA, 513, 0.0)
    for queue_id in range(50):
        desk.tables.offsets.commit("T", "G", queue_id, 0)
    pauses = 0
    for family in DashboardCollector(desk.parts, BrokerCounts()).collect():
        pauses += family.name == "pause"
        if pauses == 3 and links:
            list(clients.closed(links.pop()))
            desk.tables.offsets.forget_topic("T")
            desk.tables.offsets.commit("T", "H", 0, 0)
    assert pauses >= 15 + 5


async def test_no_page_shows_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_metrics, "STEP", 1)
    desk, found = Desk(), CollectorRegistry()
    for queue_id in range(3):
        desk.tables.offsets.commit("T", "G", queue_id, 0)
    found.register(DashboardCollector(desk.parts, BrokerCounts()))
    _, _, body = await HealthPages(found, lambda: {"healthy": True}).page("GET", "/metrics")
    assert b"rocketmq_consumer_lag_messages{" in body and b"pause" not in body


def test_the_number_of_queues_looked_at_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand groups in a topic of a thousand queues were half a second of the loop at each scrape."""
    monkeypatch.setattr(dashboard_metrics, "MAX_LAG_QUEUES", 25)
    desk = Desk()
    for number in range(5):
        for queue_id in range(10):
            desk.tables.offsets.commit("T", f"G{number}", queue_id, 0)
    looked, ranges = list[int](), desk.parts.store.queue_range

    def counted(topic: str, queue_id: int) -> tuple[int, int]:
        looked.append(queue_id)
        return ranges(topic, queue_id)

    monkeypatch.setattr(desk.parts.store, "queue_range", counted)
    shown = page(desk)
    assert sum(line.startswith("rocketmq_consumer_lag_messages{") for line in shown) == 2 and len(looked) == 20


def test_of_very_many_offsets_only_those_that_are_shown_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them were a turn of the loop of 350 ms."""
    monkeypatch.setattr(dashboard_metrics, "MAX_SERIES", 3)
    desk, looked = Desk(), list[str]()

    class Counted(dict[str, dict[int, int]]):
        def __getitem__(self, key: str) -> dict[int, int]:
            looked.append(key)
            return super().__getitem__(key)

        def __iter__(self) -> Never:
            raise AssertionError("all of them")

        items = __iter__

    for number in range(10):
        desk.tables.offsets.commit(f"T{number}", "g", 0, 0)
    monkeypatch.setattr(type(desk.tables.offsets), "committed_offsets", Counted(desk.tables.offsets.committed_offsets))
    page(desk)
    assert looked == ["T0@g", "T1@g", "T2@g"]
