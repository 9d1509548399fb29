"""Commits that were made at a slave, and what its master makes of them (H13)."""

from __future__ import annotations

import pytest

from support.table_peers import Master, Slave
from tallystick.rocketmq.broker import metadata_sync
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import GroupConfig, RequestCode, TopicConfig


@pytest.mark.rule("H12", "H13")
async def test_h13_a_master_that_comes_back_learns_what_was_consumed_meanwhile(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 2, 2))
    master.tables.groups.put(GroupConfig("g"))
    for queue_id in (0, 1):
        master.tables.offsets.commit("T", "g", queue_id, 5)
    await slave.copy(master)
    slave.tables.offsets.commit("T", "g", 0, 50)  # the master is away
    master.tables.offsets.commit("T", "g", 1, 6)
    assert await slave.copy(master) == {}
    for desk in (master, slave):
        assert dict(desk.tables.offsets.queues("T", "g")) == {0: 50, 1: 6}
    master.tables.offsets.commit("T", "g", 0, 1)  # a reset: from here on the master's word counts again
    await slave.copy(master)
    for desk in (master, slave):
        assert desk.tables.offsets.get("T", "g", 0) == 1


@pytest.mark.rule("H13")
async def test_h13_consumers_that_are_back_at_the_master_are_not_set_back(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    slave.tables.offsets.commit("T", "g", 0, 40)
    master.tables.offsets.commit("T", "g", 0, 50)
    assert await slave.copy(master) == {}
    assert master.tables.offsets.get("T", "g", 0) == slave.tables.offsets.get("T", "g", 0) == 50
    assert RequestCode.UPDATE_CONSUMER_OFFSET not in master.asked


async def test_a_commit_that_the_master_refuses_holds_up_no_other(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    master.react[RequestCode.PULL_MESSAGE] = lambda command: command.response(26)  # groups do not make themselves
    slave.tables.offsets.commit("Gone", "g", 0, 4)
    slave.tables.offsets.commit("T", "other", 0, 4)
    slave.tables.offsets.commit("T", "g", 0, 4)
    assert await slave.copy(master) == {}
    assert master.tables.offsets.table().offsets == slave.tables.offsets.table().offsets == {"T@g": {0: 4}}


async def test_a_commit_that_fails_otherwise_is_told_again(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    slave.tables.offsets.commit("T", "g", 0, 4)
    master.refuse(RequestCode.UPDATE_CONSUMER_OFFSET)
    await slave.copy(master)
    assert slave.tables.offsets.get("T", "g", 0) == 4
    master.react.clear()
    await slave.copy(master)
    assert master.tables.offsets.get("T", "g", 0) == 4


async def test_what_is_committed_while_the_master_is_being_told_is_told_next(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    slave.tables.offsets.commit("T", "g", 0, 4)

    def commit(command: Command) -> None:
        slave.tables.offsets.commit("T", "g", 0, 9)

    master.react[RequestCode.UPDATE_CONSUMER_OFFSET] = commit
    await slave.copy(master)
    assert slave.tables.offsets.get("T", "g", 0) == 9
    master.react.clear()
    await slave.copy(master)
    assert master.tables.offsets.get("T", "g", 0) == 9


@pytest.mark.rule("H13")
async def test_h13_a_commit_that_the_master_has_no_room_for_is_kept_and_told_seldom(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.tables.topics.put(TopicConfig("T", 4, 4))
    master.tables.groups.put(GroupConfig("g"))
    master.tables.offsets.most = 2
    for queue_id in range(4):
        slave.tables.offsets.commit("T", "g", queue_id, 7)
    told = []
    for _ in range(4):
        assert await slave.copy(master) == {}
        told.append(master.asked.count(RequestCode.UPDATE_CONSUMER_OFFSET))
    assert told == [4, 6, 6, 6]
    assert dict(master.tables.offsets.queues("T", "g")) == {0: 7, 1: 7}
    assert dict(slave.tables.offsets.queues("T", "g")) == dict.fromkeys(range(4), 7)
    why = "the master does not take 2 offsets that were committed here: This broker keeps 2 offsets"
    assert slave.sync.status.why.startswith(why) and len(slave.said("commits not taken")) == 1
    slave.save()
    slave.restart()
    assert dict(slave.tables.offsets.queues("T", "g")) == dict.fromkeys(range(4), 7)
    master.tables.offsets.most = 4
    monkeypatch.setattr(slave.sync._clock, "now", lambda: 1e9, raising=False)
    assert await slave.copy(master) == {}
    assert dict(master.tables.offsets.queues("T", "g")) == dict.fromkeys(range(4), 7)
    assert slave.sync.status.why == ""


@pytest.mark.rule("H13")
async def test_h13_a_commit_of_a_group_that_the_master_has_no_room_for_is_kept(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """26 says that there is no such group, and the slave forgot the commit."""
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.most = len(master.tables.groups.all)
    slave.tables.offsets.commit("T", "g", 0, 7)
    for _ in range(2):
        assert await slave.copy(master) == {}
    assert slave.tables.offsets.get("T", "g", 0) == 7
    why = "the master does not take 1 offsets that were committed here: This broker has"
    assert slave.sync.status.why.startswith(why) and "(maxGroups)" in slave.sync.status.why
    assert len(slave.said("commits not taken")) == 1
    slave.save()
    slave.restart()
    assert slave.tables.offsets.get("T", "g", 0) == 7
    master.tables.groups.put(GroupConfig("g"))
    monkeypatch.setattr(slave.sync._clock, "now", lambda: 1e9, raising=False)
    assert await slave.copy(master) == {}
    assert (master.tables.offsets.get("T", "g", 0), slave.sync.status.why) == (7, "")
    assert RequestCode.PULL_MESSAGE not in master.asked


@pytest.mark.rule("H13")
async def test_h13_a_commit_behind_what_the_master_has_on_its_disk_is_kept_till_it_has_it(
    master: Master, slave: Slave
) -> None:
    """With a slow disk a slave shows a message before its master does; it forgot the commit, and its consumer went
    back."""
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    master.ends["T", 0] = 7
    slave.tables.offsets.commit("T", "g", 0, 8)
    assert await slave.copy(master) == {}
    assert (slave.tables.offsets.get("T", "g", 0), master.tables.offsets.get("T", "g", 0)) == (8, None)
    master.ends["T", 0] = 8
    assert await slave.copy(master) == {}
    assert master.tables.offsets.get("T", "g", 0) == 8


@pytest.mark.rule("H13")
async def test_h13_a_commit_beyond_the_end_of_both_queues_is_forgotten_at_the_second_look(
    master: Master, slave: Slave
) -> None:
    """The messages that it counted are in neither log. It stayed for ever, and a promoted slave would have passed over
    as many new ones."""
    master.tables.topics.put(TopicConfig("T", 2, 2))
    master.tables.groups.put(GroupConfig("g"))
    master.tables.offsets.commit("T", "g", 0, 3)
    for queue_id in (0, 1):
        slave.tables.offsets.commit("T", "g", queue_id, 8)
        master.ends["T", queue_id] = slave.ends["T", queue_id] = 7
    assert await slave.copy(master) == {}
    assert dict(slave.tables.offsets.queues("T", "g")) == {0: 8, 1: 8}
    slave.ends["T", 1] = 8  # the slave dispatches a record that its master does not show yet
    assert await slave.copy(master) == {}
    assert await slave.copy(master) == {}
    assert dict(slave.tables.offsets.queues("T", "g")) == {0: 3, 1: 8}
    assert slave.sync.status.why.startswith("the master does not take 1 offsets that were committed here: Offset 8")
    master.ends["T", 1] = 8
    slave.sync.master = master.address  # as it is
    slave.tables.offsets.commit("T", "g", 0, 7)
    assert await slave.copy(master) == {}
    assert dict(master.tables.offsets.queues("T", "g")) == {0: 7, 1: 8}


@pytest.mark.rule("H13")
async def test_h13_a_later_commit_beyond_the_end_is_looked_at_twice_itself(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    master.ends["T", 0] = slave.ends["T", 0] = 7
    slave.tables.offsets.commit("T", "g", 0, 8)
    await slave.copy(master)
    slave.tables.offsets.commit("T", "g", 0, 9)
    await slave.copy(master)
    assert slave.tables.offsets.get("T", "g", 0) == 9
    await slave.copy(master)
    assert slave.tables.offsets.get("T", "g", 0) is None


@pytest.mark.rule("H13")
async def test_h13_a_commit_to_a_topic_that_was_made_anew_is_forgotten(master: Master, slave: Slave) -> None:
    """Also where it is beyond the end: there will be messages."""
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    slave.tables.offsets.commit("T", "g", 0, 8)
    master.tables.offsets.forget_topic("T")
    master.ends["T", 0] = 7
    assert await slave.copy(master) == {}
    assert slave.tables.offsets.get("T", "g", 0) is None


async def test_another_master_is_told_of_all_commits_at_once(master: Master, other: Master, slave: Slave) -> None:
    for each in (master, other):
        each.tables.topics.put(TopicConfig("T", 4, 4))
        each.tables.groups.put(GroupConfig("g"))
    master.tables.offsets.most = 0
    slave.tables.offsets.commit("T", "g", 0, 7)
    slave.sync.master = master.address
    for _ in range(3):
        await slave.copy(master)
    slave.sync.master = other.address
    await slave.copy(other)
    assert other.tables.offsets.get("T", "g", 0) == 7


@pytest.mark.rule("H12", "H13")
async def test_h13_many_commits_are_told_over_several_rounds(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tables do not wait for them."""
    monkeypatch.setattr(metadata_sync, "TELL_S", 0.0)
    master.tables.topics.put(TopicConfig("T", 4, 4))
    master.tables.groups.put(GroupConfig("g"))
    for queue_id in range(4):
        slave.tables.offsets.commit("T", "g", queue_id, 7)
    failed = await slave.copy(master)
    assert failed == {"consumer offsets": "the master is still to be told of what was committed here (commits=4)"}
    assert "g" in slave.tables.groups.all
    assert dict(slave.tables.offsets.queues("T", "g")) == dict.fromkeys(range(4), 7)
    monkeypatch.undo()
    assert await slave.copy(master) == {}
    assert dict(master.tables.offsets.queues("T", "g")) == dict.fromkeys(range(4), 7)
