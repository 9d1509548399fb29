from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from support.admin_desk import MASTER, SLAVE, Desk
from support.message_stores import ROOT
from tallystick.errors import StorageError
from tallystick.rocketmq.broker.responses import MAX_DELETIONS, MAX_LIST
from tallystick.rocketmq.store.queue_state import read_queue_state
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import TopicTable
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import (
    ConsumerGroup,
    DataVersion,
    Heartbeat,
    Language,
    RequestCode,
    Subscription,
    TopicConfig,
)

CREATE, CREATE_MANY = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
DELETE, STATS = RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.GET_TOPIC_STATS_INFO


def wanted(**changes: Any) -> dict[str, Any]:
    return {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    } | changes


def test_a_topic_is_made_and_changed() -> None:
    desk = Desk()
    assert desk.ask(CREATE, wanted(attributes="+message.type=FIFO")).code == 0
    assert desk.tables.topics.get("T") == TopicConfig("T", 4, 2, attributes={"message.type": "FIFO"})
    assert desk.ask(CREATE, wanted(writeQueueNums=4)).code == 0
    assert desk.tables.topics.get("T") == TopicConfig("T", 4, 4, attributes={"message.type": "FIFO"})
    assert [event["write_queues"] for event in desk.said("topic changed")] == [2, 4]


def test_asked_twice_it_is_made_once() -> None:
    desk = Desk()
    desk.ask(CREATE, wanted())
    version = desk.tables.topics.version
    assert desk.ask(CREATE, wanted()).code == 0
    assert desk.tables.topics.version == version


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "../up"}, 29, "The specified topic: ../up, contains illegal characters"),
        ({"topic": " "}, 29, "The specified topic is blank."),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+x=1"}, 1, "unsupported key: x"),
        ({"attributes": "x"}, 1, "delete attribute format is wrong: x"),
        ({"readQueueNums": -1}, 29, "The topic[T] may have 0 to 65536 queues."),
        ({"writeQueueNums": 2**31 - 1}, 29, "The topic[T] may have 0 to 65536 queues."),
        ({"perm": 16}, 29, "The topic[T] has an unknown perm or filter type."),
        ({"topicFilterType": "X"}, 29, "The topic[T] has an unknown perm or filter type."),
    ],
)
def test_topics_that_are_refused(changes: dict[str, Any], code: int, remark: str) -> None:
    desk = Desk()
    answer = desk.ask(CREATE, wanted(**changes))
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert desk.tables.topics.version.counter == 0


def test_many_are_made_in_one_step_or_none() -> None:
    desk = Desk()
    good = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in ("A", "B")]
    bad = [*good, {"topicName": "a b", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]
    assert desk.ask(CREATE_MANY, body=dialect.write({"topicConfigList": bad})).code == 29
    assert desk.tables.topics.version.counter == 0
    assert desk.ask(CREATE_MANY, body=dialect.write({"topicConfigList": good})).code == 0
    assert desk.tables.topics.version.counter == 1
    assert desk.tables.topics.get("B") == TopicConfig("B", 2, 2)


def test_a_long_list_of_topics_is_told_as_one_and_a_longer_one_refused() -> None:
    """A list of 29,000 was a turn of the loop of 1.2 s, and 4.5 MB of log."""
    desk = Desk(replace(MASTER, max_topics=5000))

    def create(count: int) -> Command:
        names = [{"topicName": f"T{n}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for n in range(count)]
        return desk.ask(CREATE_MANY, body=dialect.write({"topicConfigList": names}))

    assert create(MAX_LIST + 1).code == 29 and desk.tables.topics.get("T0") is None
    assert create(MAX_LIST).code == 0 and desk.tables.topics.get(f"T{MAX_LIST - 1}") is not None
    assert desk.said("topic changed") == []
    assert [(event["topics"], event["first"]) for event in desk.said("topics changed")] == [(MAX_LIST, "T0")]


@pytest.mark.rule("H12")
def test_h12_a_slave_makes_no_topics_and_deletes_none_by_itself() -> None:
    desk = Desk(SLAVE)
    answer = desk.ask(CREATE, wanted())
    assert (answer.code, answer.remark) == (
        1,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    )
    masters = TopicTable(DataVersion(0, 1, 1), {"T": TopicConfig("T")})
    desk.tables.topics.replace(masters)
    desk.shelf.send(b"acknowledged", topic="T")
    desk.shelf.settle()
    desk.tables.offsets.commit("T", "g", 0, 1)
    answer = desk.ask(DELETE, {"topic": "T"})  # a tool that asks each broker in turn
    assert (answer.code, answer.remark) == (0, "This is a slave: it deletes what its master deletes.")
    assert desk.tables.topics.get("T") is not None and desk.tables.topics.version == masters.version
    assert desk.tables.offsets.get("T", "g", 0) == 1
    assert desk.shelf.bodies("T") == [b"acknowledged"] and not desk.shelf.store.replicated.deletions


def test_with_a_topic_go_its_offsets_and_queues() -> None:
    desk = Desk()
    desk.ask(CREATE, wanted(topic="Topic"))
    desk.shelf.send(b"x")
    desk.shelf.settle()
    desk.tables.offsets.commit("Topic", "g", 0, 1)
    desk.parts.traffic.stored("Topic", 60, desk.clock.ms)
    assert desk.ask(DELETE, {"topic": "Topic"}).code == 0
    assert desk.tables.topics.get("Topic") is None
    assert desk.tables.offsets.get("Topic", "g", 0) is None
    assert desk.shelf.store.queue_range("Topic", 0) == (0, 0)
    assert desk.parts.traffic.put_tps("Topic", desk.clock.ms) == 0
    assert desk.ask(DELETE, {"topic": "Topic"}).code == 0  # there is none
    assert len(desk.said("topic deleted")) == 1
    assert desk.ask(DELETE, {"topic": "Nobody's"}).code == 0
    assert list(desk.shelf.store.replicated.deletions) == ["Topic"], "a name that nobody used is not noted"
    assert desk.ask(DELETE, {"topic": "b0"}).remark == "The topic[b0] is conflict with system topic."
    assert desk.ask(DELETE, {"topic": " "}).remark == "The specified topic is blank."


def test_a_deletion_that_could_not_be_noted_is_noted_when_it_is_asked_for_again() -> None:
    desk = Desk()
    desk.ask(CREATE, wanted(topic="Topic"))
    desk.shelf.send(b"x")
    desk.shelf.settle()
    desk.shelf.disk.fault = lambda operation, path: StorageError("bad") if "tally-queues" in path else None
    answer = desk.ask(DELETE, {"topic": "Topic"})
    assert answer.code == 1 and "cannot be made durable" in (answer.remark or "")
    desk.shelf.disk.fault = None
    assert "Topic" not in read_queue_state(desk.shelf.disk, ROOT).deletions
    assert desk.ask(DELETE, {"topic": "Topic"}).code == 0
    assert "Topic" in read_queue_state(desk.shelf.disk, ROOT).deletions


@pytest.mark.parametrize("code", [DELETE, RequestCode.CLEAN_UNUSED_TOPIC])
def test_a_deletion_is_refused_while_many_wait_for_the_disk(code: int) -> None:
    desk = Desk()
    desk.ask(CREATE, wanted(topic="T"))
    cast("Any", desk.parts.deletions).pending_count = MAX_DELETIONS
    answer = desk.ask(code, {"topic": "T"})
    assert (answer.code, answer.remark) == (2, "too many deletions wait for the disk: ask again later")
    assert desk.tables.topics.get("T") is not None and not desk.shelf.store.replicated.deletions


def test_a_topic_by_itself() -> None:
    desk = Desk(MASTER)
    answer = desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: T")


def test_statistics_of_a_topic() -> None:
    desk = Desk()
    desk.ask(CREATE, wanted(topic="Topic", writeQueueNums=1, readQueueNums=2))
    desk.shelf.send(b"x", b"y")
    desk.shelf.settle()
    desk.parts.traffic.stored("Topic", 120, desk.clock.ms)
    stats = desk.read(STATS, {"topic": "Topic"})
    assert stats["topicPutTps"] == 2
    first, second = (dict(queue) | found for queue, found in stats["offsetTable"].items())
    assert first == {
        "brokerName": "b0",
        "queueId": 0,
        "topic": "Topic",
        "minOffset": 0,
        "maxOffset": 2,
        "lastUpdateTimestamp": desk.clock.ms,
    }
    assert (second["queueId"], second["maxOffset"], second["lastUpdateTimestamp"]) == (1, 0, 0)
    assert desk.ask(STATS, {"topic": "U"}).code == 17


def test_who_consumes_a_topic() -> None:
    desk = Desk()
    desk.tables.offsets.commit("T", "once", 0, 1)
    group = ConsumerGroup("now", subscriptions=(Subscription("T"),))
    beat = Heartbeat("client", consumers=(group,))
    desk.parts.clients.heartbeat_received("link", beat, beat.consumers, Language.JAVA, 1, 0.0)  # type: ignore[arg-type]  # any link
    found = desk.read(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})
    assert found == {"groupList": ["now", "once"]}


def test_system_topics_are_listed() -> None:
    found = Desk().read(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert {"b0", "c0", "TBW102", "rmq_sys_wheel_timer"} < set(found["topicList"])


def test_a_broker_that_has_all_its_topics_says_so() -> None:
    desk = Desk(replace(MASTER, max_topics=16))
    fields = {
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    assert desk.ask(17, {"topic": "T", **fields}).code == 0
    refused = desk.ask(17, {"topic": "U", **fields})
    assert refused.code == 1
    assert refused.remark == "This broker has 16 topics: no more fit into 16 places (maxTopics)."
    assert desk.ask(17, {"topic": "T", **fields, "perm": 4}).code == 0
