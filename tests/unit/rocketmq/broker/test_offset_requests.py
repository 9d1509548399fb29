from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from support.admin_desk import MASTER, SLAVE, Desk
from support.copied_offsets import lacking
from support.message_stores import SMALL
from tallystick.rocketmq.broker import responses
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import (
    ConsumerGroup,
    DataVersion,
    GroupConfig,
    Heartbeat,
    Language,
    RequestCode,
    Subscription,
    TopicConfig,
)

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
def desk() -> Desk:
    """With three messages in the first of two queues, and group g."""
    desk = Desk()
    desk.tables.topics.put(TopicConfig("Topic", 2, 2))
    desk.tables.groups.put(GroupConfig("g"))
    desk.shelf.send(b"a", b"b", b"c")
    desk.shelf.settle()
    return desk


def commit(desk: Desk, offset: int, **changes: Any) -> Command:
    return desk.ask(UPDATE, {"topic": "Topic", "consumerGroup": "g", "queueId": 0, "commitOffset": offset} | changes)


def query(desk: Desk, **changes: Any) -> Command:
    return desk.ask(QUERY, {"topic": "Topic", "consumerGroup": "g", "queueId": 0} | changes)


def test_an_offset_is_kept(desk: Desk) -> None:
    assert commit(desk, 1).code == 0
    assert not desk.tables.offsets.dirty, "where a group begins is saved at once"
    assert commit(desk, 2).code == 0
    assert query(desk).fields == {"offset": "2"}
    assert desk.tables.offsets.dirty


@pytest.mark.rule("H13")
def test_h13_a_slave_takes_no_commit_behind_its_last_message() -> None:
    """Of a topic that was made anew the group passed over all that the slave had, and the master after it."""
    desk = Desk(SLAVE)
    desk.tables.topics.put(TopicConfig("Topic", 2, 2))
    desk.tables.groups.put(GroupConfig("g"))
    desk.ends["Topic", 0] = 3
    refused = commit(desk, 100, tallyMark="99.0000000a")
    assert (refused.code, refused.remark) == (29, "Offset 100 is beyond the end of queue 0, topic is Topic")
    assert desk.tables.offsets.get("Topic", "g", 0) is None
    assert lacking(desk.tables.offsets, OffsetTable(DataVersion(), {})) == []


def test_who_went_back_is_counted_and_told_to_clients_of_ours(desk: Desk) -> None:
    """By it a member that was away tells a broker that forgot from others that went back."""
    assert commit(desk, 3).fields == {} == commit(desk, 3).fields
    assert query(desk, tallyMark="").fields.get("tallyResets") is None
    assert commit(desk, 1).fields == {"tallyResets": "1"} == commit(desk, 2).fields
    assert query(desk, tallyMark="").fields["tallyResets"] == "1"
    assert query(desk).fields == {"offset": "2"}


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"consumerGroup": "h"}, 26, "Group h not exist!"),
        ({"topic": "U"}, 17, "Topic U not exist!"),
        ({"queueId": 2}, 29, "No queue 2 or no offset 1, topic is Topic"),
        ({"queueId": -1}, 29, "No queue -1 or no offset 1, topic is Topic"),
        ({"commitOffset": -1}, 29, "No queue 0 or no offset -1, topic is Topic"),
        ({"commitOffset": 4}, 29, "Offset 4 is beyond the end of queue 0, topic is Topic"),
        ({"commitOffset": 4, "tallyResets": 0}, 1, "Offset 4 is beyond the end of queue 0, topic is Topic"),
    ],
)
def test_commits_that_are_refused(desk: Desk, changes: dict[str, Any], code: int, remark: str) -> None:
    desk.ends["Topic", 0] = 3
    answer = commit(desk, 1, **changes)
    assert (answer.code, answer.remark) == (code, remark)
    assert not desk.tables.offsets.dirty


@pytest.mark.rule("H13")
def test_h13_who_goes_back_from_what_a_slave_alone_knows_is_not_sent_on_again(desk: Desk) -> None:
    for went_back, stands in (({}, 3), ({"tallyWentBack": "true"}, 2)):
        commit(desk, 1)
        known = desk.tables.offsets.resets.get("Topic@g", 0)  # when 3 was committed at the slave
        commit(desk, 2, **went_back)
        commit(desk, 3, tallyResets=known)
        assert query(desk).fields == {"offset": str(stands)}


@pytest.mark.rule("H13")
def test_h13_who_has_not_heard_of_a_reset_goes_on_where_the_group_is_not_where_a_slave_was(desk: Desk) -> None:
    pending = desk.tables.offsets.resets.pending
    pending.put("Topic@g", {0: 1})
    commit(desk, 1)
    commit(desk, 3)
    assert commit(desk, 2, tallyResets=desk.tables.offsets.resets.get("Topic@g", 0)).code == 0, "as good as taken"
    assert pending.hear("Topic@g", 0, 100, "another", 0.0, commits=False) == 3


@pytest.mark.rule("H13")
def test_h13_a_slave_takes_the_commits_of_a_group_that_it_has_not_heard_of() -> None:
    desk = Desk(SLAVE)
    desk.tables.topics.put(TopicConfig("Topic", 1, 1))
    assert commit(desk, 5, consumerGroup="new").code == 0
    assert [each.offset for each in lacking(desk.tables.offsets, Desk().tables.offsets.table())] == [5]


def test_without_an_offset_a_short_young_queue_begins_at_its_first_message(desk: Desk) -> None:
    assert query(desk).fields == {"offset": "0"}
    answer = query(desk, setZeroIfNotFound="false")
    assert (answer.code, answer.remark) == (22, "Not found, do not set to zero, maybe this group boot first")
    answer = query(desk, queueId=1)
    assert (answer.code, answer.remark) == (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    assert query(desk, topic="Nope").code == 22


def test_where_the_queue_begins_on_the_disk_the_group_decides_by_itself() -> None:
    desk = Desk(store=replace(SMALL, memory_bytes=1))
    desk.tables.topics.put(TopicConfig("Topic", 1, 1))
    desk.shelf.send(b"a", b"b")
    desk.shelf.settle()
    assert query(desk).code == 22


def lags(desk: Desk, **fields: str) -> list[tuple[str, int, int, int, int, int]]:
    found = desk.read(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"} | fields)["offsetTable"]
    return [
        (
            dict(queue)["topic"],
            dict(queue)["queueId"],
            lag["brokerOffset"],
            lag["consumerOffset"],
            lag["pullOffset"],
            lag["lastTimestamp"],
        )
        for queue, lag in found.items()
    ]


def test_how_far_behind_a_group_is(desk: Desk) -> None:
    commit(desk, 2)
    desk.tables.offsets.set_pull_offset("Topic", "g", 0, 3)
    assert lags(desk) == [("Topic", 0, 3, 2, 3, desk.clock.ms), ("Topic", 1, 0, 0, 0, 0)]
    assert lags(desk, topic="U") == []


def test_topics_that_the_connected_members_do_not_want_are_left_out(desk: Desk) -> None:
    commit(desk, 2)
    beat = Heartbeat("client", consumers=(ConsumerGroup("g", subscriptions=(Subscription("U"),)),))
    desk.parts.clients.heartbeat_received("link", beat, beat.consumers, Language.JAVA, 1, 0.0)  # type: ignore[arg-type]  # any link
    assert lags(desk) == lags(desk, topic="Topic") == []


def test_the_speed_of_a_group_is_over_all_its_topics(desk: Desk) -> None:
    commit(desk, 2)
    desk.parts.traffic.read("Topic", "g", 120, 0, desk.clock.ms)
    assert desk.read(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})["consumeTps"] == 2


@pytest.mark.rule("H12")
def test_h12_original_slaves_can_read_the_table_of_offsets(desk: Desk) -> None:
    """It is strict JSON: their parser cannot skip a field that it does not know when that has bare numbers as keys."""
    commit(desk, 2)
    desk.tables.offsets.set_pull_offset("Topic", "g", 0, 3)
    table = json.loads(bytes(desk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET, {}).body))
    assert (table["offsetTable"], table["pullOffsetTable"]) == ({"Topic@g": {"0": 2}}, {"Topic@g": {"0": 3}})


def test_how_far_behind_all_groups_are() -> None:
    desk = Desk()
    desk.tables.topics.put(TopicConfig("T", 1, 1), TopicConfig("Ordered", 1, 1, order=True))
    for group in ("g", "h"):
        desk.tables.groups.put(GroupConfig(group))
    for topic in ("T", "Ordered"):
        for _ in range(5):
            desk.shelf.send(b"x", topic=topic)
        desk.tables.offsets.commit(topic, "g", 0, 2)
    desk.shelf.settle()
    code = RequestCode.GET_BROKER_CONSUME_STATS
    found = desk.read(code, {"isOrder": "false"})
    assert (found["totalDiff"], found["totalInflightDiff"], found["brokerAddr"]) == (6, 0, "127.0.0.1:22500")
    stats = {group: each for table in found["consumeStatsList"] for group, each in table.items()}
    assert (len(stats["g"]), stats["h"]) == (2, [])
    assert desk.read(code, {"isOrder": "true"})["totalDiff"] == 3


def test_a_commit_told_by_a_slave_counts_if_the_offset_was_not_set_since() -> None:
    desk = Desk()
    desk.tables.topics.put(TopicConfig("T", 2, 2))
    desk.tables.groups.put(GroupConfig("g"))
    told = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 100, "tallyResets": 0}
    assert desk.ask(15, told).code == 0
    assert desk.tables.offsets.get("T", "g", 0) == 100
    desk.tables.offsets.reset("T", "g", 0, 10)
    refused = desk.ask(15, told)
    assert (refused.code, refused.remark) == (29, "The offset of group g was set since, topic is T")
    assert desk.tables.offsets.get("T", "g", 0) == 10
    desk.tables.offsets.resets.pending.put("T@g", {0: 10})
    known = desk.tables.offsets.resets.get("T@g", 0)
    assert desk.ask(15, {**told, "commitOffset": 20, "tallyResets": known}).code == 0
    here = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 90}
    assert desk.ask(15, here).fields == {"tallyResetTo": "20"}, "its consumers heard of the reset at the slave"


def test_a_full_table_of_offsets_takes_those_that_it_has() -> None:
    desk = Desk(replace(MASTER, max_offsets=1))
    desk.tables.topics.put(TopicConfig("T", 2, 2))
    desk.tables.groups.put(GroupConfig("g"))
    told = {"consumerGroup": "g", "topic": "T", "commitOffset": 1}
    codes = [desk.ask(15, {**told, "queueId": queue_id}) for queue_id in (0, 0, 1)]
    codes.append(desk.ask(15, {**told, "queueId": 1, "tallyResets": 0}))  # told by a slave, which is to keep it
    assert [answer.code for answer in codes] == [0, 0, 1, 1]
    assert all("maxOffsets" in (refused.remark or "") for refused in codes[2:])


def test_a_table_that_fits_no_frame_is_refused_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_BODY_BYTES", 1000)
    desk = Desk()
    for number in range(100):
        desk.tables.offsets.commit("T", f"g{number}", 0, 1)
    for _ in range(2):
        answer = desk.ask(43)
        assert answer.code == 1
        assert "only a slave of ours" in (answer.remark or "")
    assert len(desk.said("offsets not sent")) == 1


def test_a_commit_of_who_read_another_log_is_refused(desk: Desk) -> None:
    mark = query(desk, tallyMark="").fields.get("tallyMark")
    assert mark is None, "the group stands at the first message"
    assert commit(desk, 2).code == 0
    asked = query(desk, tallyMark="")
    assert asked.fields["offset"] == "2"
    mark = asked.fields["tallyMark"]
    assert commit(desk, 1, tallyMark=mark).code == 0
    for wrong in ("1.00000000", "3.00000000"):
        answer = commit(desk, 2, tallyMark=wrong)
        assert (answer.code, (answer.remark or "")[:51]) == (29, "Queue 0 has not the messages that this consumer had")
    assert query(desk).fields == {"offset": "1"}
