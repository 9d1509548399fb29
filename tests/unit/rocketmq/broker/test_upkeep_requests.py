"""Upkeep that an operator orders, and a look into a queue."""

from __future__ import annotations

import time

import pytest

from support.admin_desk import SLAVE, Desk
from tallystick.rocketmq.broker import upkeep_requests
from tallystick.rocketmq.broker.offsets import OffsetCommit
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, Language, RequestCode, Subscription, TopicConfig


def filled(count: int = 5) -> Desk:
    desk = Desk()
    desk.tables.topics.put(TopicConfig("T", 1, 1))
    for number in range(count):
        desk.shelf.send(b"%d" % number, topic="T")
    desk.shelf.settle()
    return desk


def test_expired_files_go_at_any_hour_when_an_operator_says_so() -> None:
    desk = Desk()
    store = desk.shelf.store
    while len(store._log.files.files) < 4:
        desk.shelf.send(bytes(1000), topic="T")
        desk.shelf.settle()
    desk.clock.ms += 80 * 3_600_000
    if time.localtime(desk.clock.ms / 1000).tm_hour == desk.shelf.settings.delete_hour:
        desk.clock.ms += 3_600_000
    desk.shelf.settle()
    assert store.first == 0, "it is not the hour"
    for code in (RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE):
        assert desk.ask(code).code == 0
    desk.shelf.settle()
    desk.shelf.settle()
    assert store.first > 0
    assert store.queue_range("T", 0)[0] > 0


def test_queues_of_topics_that_are_deleted_go() -> None:
    desk = filled()
    desk.shelf.send(b"x", topic="Gone")
    desk.shelf.settle()
    assert desk.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert "Gone" not in desk.shelf.store.queues()
    assert desk.shelf.bodies("T") == [b"0", b"1", b"2", b"3", b"4"]
    assert [event["topic"] for event in desk.said("queues of a deleted topic removed")] == ["Gone"]
    assert Desk(SLAVE).ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 1


@pytest.mark.rule("H13")
def test_h13_what_groups_had_consumed_of_it_goes_along() -> None:
    """Messages of a topic that is made anew under its name count from 0: the first of them were delivered to nobody."""
    desk = filled()
    desk.shelf.send(b"x", topic="Gone")
    desk.shelf.settle()
    offsets = desk.tables.offsets
    for topic in ("Gone", "T"):
        assert offsets.reset(topic, "g", 0, 1)
        offsets.resets.pending.put(f"{topic}@g", {0: 1})
        desk.parts.traffic.read(topic, "g", 60, 1, desk.clock.ms)
    desk.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    assert (offsets.get("Gone", "g", 0), offsets.get("T", "g", 0)) == (None, 1)
    assert offsets.resets.pending.table() == {"T@g": {0: 1}}
    assert [key for key, _ in desk.parts.traffic.gets_by_group()] == [("T", "g")]
    assert not offsets.take(OffsetCommit("Gone", "g", 0, 1)), "made at a slave before"


def test_very_many_unused_topics_go_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_requests, "MAX_UNUSED", 2)
    desk = filled()
    for topic in "abc":
        desk.shelf.send(b"x", topic=topic)
    desk.shelf.settle()
    remarks = [desk.ask(RequestCode.CLEAN_UNUSED_TOPIC).remark for _ in range(3)]
    assert remarks == ["1 more topics are unused: ask again", None, None]
    assert set(desk.shelf.store.queues()) == {"T"}


def test_a_look_into_a_queue() -> None:
    desk = filled()
    fields = {"topic": "T", "queueId": 0, "index": 3, "count": 10}
    seen = desk.read(RequestCode.QUERY_CONSUME_QUEUE, fields)
    assert (seen["minQueueIndex"], seen["maxQueueIndex"], len(seen["queueData"])) == (0, 5, 2)
    assert "filterData" not in seen
    assert seen["queueData"][0]["physicSize"] > 0
    assert len(desk.read(RequestCode.QUERY_CONSUME_QUEUE, fields | {"count": 1})["queueData"]) == 1
    assert "Index 9" in (desk.ask(RequestCode.QUERY_CONSUME_QUEUE, fields | {"index": 9}).remark or "")
    assert desk.ask(RequestCode.QUERY_CONSUME_QUEUE, fields | {"queueId": 7}).remark == "7@T is not exist!"


def test_a_look_into_a_queue_for_a_group() -> None:
    desk = filled()
    fields = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "G"}
    assert desk.read(RequestCode.QUERY_CONSUME_QUEUE, fields)["filterData"] == "G@T is not online!"
    group = ConsumerGroup("G", subscriptions=(Subscription("T", "a"),))
    desk.parts.clients.heartbeat_received(object(), Heartbeat("c"), [group], Language.JAVA, 1, 0.0)  # type: ignore[arg-type]
    assert desk.read(RequestCode.QUERY_CONSUME_QUEUE, fields)["subscriptionData"]["subString"] == "a"
