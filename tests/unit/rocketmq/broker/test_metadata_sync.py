from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from support.table_peers import Master, Slave
from support.waiting import until
from tallystick.rocketmq.broker import config_pages, master_tables, metadata_sync, offset_keys, rounds
from tallystick.rocketmq.broker.offset_keys import OffsetKeys
from tallystick.rocketmq.broker.offset_merge import OffsetMerge
from tallystick.rocketmq.remoting import slices
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import TopicTable, TopicTableResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, TopicConfig


@pytest.mark.rule("H12")
async def test_h12_a_slave_has_all_that_its_master_has(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 3, 3))
    master.tables.groups.put(GroupConfig("g", retry_max_times=2))
    master.tables.offsets.commit("T", "g", 0, 7)
    delays = b'{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":5},"offsetTable":{2:1}}'
    master.react[45] = lambda command: command.response(0, body=delays)
    assert await slave.copy(master) == {}
    assert (slave.tables.topics.version, dict(slave.tables.topics.all)) == (
        master.tables.topics.version,
        dict(master.tables.topics.all),
    )
    assert slave.tables.groups.table() == master.tables.groups.table()
    assert slave.tables.offsets.table() == master.tables.offsets.table()
    assert slave.tables.delays.text == delays
    assert slave.sync.status.synced_ms > 0
    slave.save()
    slave.restart()
    assert slave.tables.topics.get("T") == TopicConfig("T", 3, 3)
    assert slave.tables.groups.all["g"].retry_max_times == 2
    assert slave.tables.offsets.get("T", "g", 0) == 7


@pytest.mark.rule("H12")
async def test_h12_tables_of_the_same_version_are_left_alone(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T", 3, 3))
    await slave.copy(master)
    before, changes = slave.tables.topics.all, slave.topics_changed
    await slave.copy(master)
    assert slave.tables.topics.all is before
    master.tables.topics.delete("T")
    await slave.copy(master)
    assert slave.tables.topics.get("T") is None
    assert slave.topics_changed == changes + 1


@pytest.mark.rule("H12")
async def test_h12_nobody_sees_half_a_table(master: Master, slave: Slave) -> None:
    seen = []

    def look(command: Command) -> None:
        seen.append(dict(slave.tables.topics.all))

    master.tables.topics.put(*(TopicConfig(f"T{number}") for number in range(50)))
    await slave.copy(master)
    master.tables.topics.put(TopicConfig("more"))
    for code in (21, 31001, 201):
        master.react[code] = look
    await slave.copy(master)
    assert [len(table) for table in seen] == [65, 66, 66]


@pytest.mark.rule("H12")
@pytest.mark.parametrize(
    ("code", "part"), [(21, "topics"), (31001, "consumer offsets"), (45, "delay offsets"), (201, "groups")]
)
async def test_h12_each_part_fails_alone(master: Master, slave: Slave, code: int, part: str) -> None:
    master.tables.topics.put(TopicConfig("T"))
    master.tables.groups.put(GroupConfig("g"))
    master.tables.offsets.commit("T", "g", 0, 7)
    master.refuse(code)
    assert await slave.copy(master) == await slave.copy(master)
    assert slave.sync.status.failures.keys() == {part}
    assert len(slave.said("metadata not copied")) == 1  # not each ten seconds
    assert slave.sync.status.synced_ms == 0
    copied = {
        21: slave.tables.topics.get("T") is not None,
        31001: slave.tables.offsets.get("T", "g", 0) == 7,
        45: 45 in master.asked,
        201: "g" in slave.tables.groups.all,
    }
    assert [which for which, done in copied.items() if not done] == ([] if code == 45 else [code])
    del master.react[code]
    assert await slave.copy(master) == {}


async def test_a_long_table_comes_in_pages(master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_pages, "PAGE_ENTRIES", 7)
    master.tables.topics.put(*(TopicConfig(f"T{number}") for number in range(40)))
    assert await slave.copy(master) == {}
    assert dict(slave.tables.topics.all) == dict(master.tables.topics.all)
    assert master.asked.count(21) == 8
    await slave.copy(master)
    assert master.asked.count(21) == 9  # the first page of the same version says it all


@pytest.mark.rule("H12")
async def test_h12_a_table_that_never_stands_still_is_copied_as_it_was_at_the_first_page(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_pages, "PAGE_ENTRIES", 7)
    monkeypatch.setattr(master_tables, "PAGES_S", 2.0)
    tables: list[TopicTable] = []

    def change(command: Command) -> None:
        tables.append(master.tables.topics.table())
        master.tables.topics.put(TopicConfig(f"T{len(tables)}"))
        master.tables.topics.delete(f"T{len(tables) - 1}")

    master.react[21] = change
    for _ in range(2):
        first = len(tables)
        assert await slave.copy(master) == {}
        assert len(tables) > first + 1
    assert slave.tables.topics.table() == tables[first + 1]  # as the first change left it


async def test_an_original_table_that_never_stands_still_is_left_for_the_next_round(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_tables, "PAGES_S", 0.05)

    def changed(command: Command) -> Command:
        version = DataVersion(0, 1, master.asked.count(21))
        body = dialect.write(TopicTableResponse(version, {"T": TopicConfig("T")}))
        return command.response(0, None, {"totalTopicNum": "2"}, body)

    master.react[21] = changed
    assert await slave.copy(master) == {"topics": "the master's table kept changing (request=GET_ALL_TOPIC_CONFIG)"}


async def test_a_table_that_ends_early_is_no_table(master: Master, slave: Slave) -> None:
    page = TopicTableResponse(DataVersion(0, 1, 1), {"T": TopicConfig("T")})
    rest = TopicTableResponse(DataVersion(0, 1, 1), {})

    def short(command: Command) -> Command:
        body = dialect.write(page if master.asked.count(21) == 1 else rest)
        return command.response(0, None, {"totalTopicNum": "2"}, body)

    master.react[21] = short
    assert "ends early" in (await slave.copy(master))["topics"]
    assert slave.tables.topics.get("T") is None


async def test_a_master_that_knows_no_pages_sends_all_at_once(master: Master, slave: Slave) -> None:
    table = TopicTableResponse(DataVersion(0, 1, 1), {"T": TopicConfig("T")})
    master.react[21] = lambda command: command.response(0, body=dialect.write(table))
    assert await slave.copy(master) == {}
    assert slave.tables.topics.get("T") == TopicConfig("T")


async def test_others_have_their_turns_while_many_offsets_are_made_ready(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    monkeypatch.setattr(offset_keys, "STEP_KEYS", 10)
    for number in range(100):
        master.tables.offsets.commit(f"T{number}", "g", 0, number)
        master.tables.offsets.set_pull_offset(f"U{number}", "g", 0, number)
    adding, turns = OffsetKeys.adding, [0]
    seen = []  # turns of others, by step

    def counted(made: OffsetKeys, keys: Iterable[str]) -> Iterator[None]:
        for _ in adding(made, keys):
            seen.append(turns[0])
            asyncio.get_running_loop().call_soon(lambda: turns.__setitem__(0, turns[0] + 1))
            yield

    monkeypatch.setattr(OffsetKeys, "adding", counted)
    assert await slave.copy(master) == {}
    assert seen == list(range(20))
    assert slave.tables.offsets.groups_of("T7") == ["g"] and slave.tables.offsets.get_pull_offset("U7", "g", 0) == 7
    list(slave.tables.offsets.forgetting_group("g"))
    assert slave.tables.offsets.table().offsets == slave.tables.offsets.table().pull_offsets == {}


@pytest.mark.rule("H12")
async def test_h12_no_offsets_are_taken_when_the_log_is_lost_sight_of_while_they_are_made_ready(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.tables.offsets.commit("T", "g", 0, 7)
    steps = OffsetMerge.steps

    def lost(merge: OffsetMerge) -> Iterator[None]:
        yield from steps(merge)
        slave.link = replace(slave.link, link=2)

    monkeypatch.setattr(OffsetMerge, "steps", lost)
    assert "lost sight of" in (await slave.copy(master))["consumer offsets"]
    assert slave.tables.offsets.get("T", "g", 0) is None


async def test_nobody_to_copy_from_fails_every_part(slave: Slave) -> None:
    await slave.sync.sync("127.0.0.1:1")
    assert len(slave.sync.status.failures) == 4


async def test_rounds_go_on_by_themselves_for_as_long_as_there_is_a_master(master: Master, slave: Slave) -> None:
    await slave.sync.take_role(slave=True)
    assert slave.sync.master is None
    slave.sync.master = master.address
    await until(lambda: slave.sync.status.synced_ms > 0)
    master.tables.topics.put(TopicConfig("T"))
    await until(lambda: slave.tables.topics.get("T") is not None)


@pytest.mark.rule("H12")
async def test_h12_a_master_is_copied_as_soon_as_it_is_known_and_another_one_too(
    master: Master, other: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "GAP_S", 0.01)
    await slave.run_seldom()
    master.tables.topics.put(TopicConfig("T"))
    slave.sync.master = master.address
    await until(lambda: slave.tables.topics.get("T") is not None)
    for name in ("U", "V"):  # two changes: else it has the version of the other table
        other.tables.topics.put(TopicConfig(name))
    slave.sync.master = other.address
    await until(lambda: slave.tables.topics.get("U") is not None)
    assert slave.tables.topics.version == other.tables.topics.version
    assert slave.tables.topics.get("T") is None


@pytest.mark.rule("H3", "H12")
async def test_h12_a_topic_whose_messages_came_is_copied_at_once(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rests() -> bool:
        """Only a timed round is due."""
        return (slave.sync._rounds.wake_at() or 0.0) > slave.sync._clock.now() + 300

    monkeypatch.setattr(rounds, "GAP_S", 0.01)
    await slave.run_seldom()
    slave.sync.master = master.address
    await until(lambda: slave.sync.status.synced_ms > 0)
    master.tables.topics.put(TopicConfig("T"))
    slave.sync.arrived(["T", "SELF_TEST_TOPIC"])
    await until(lambda: slave.tables.topics.get("T") is not None)
    await until(rests)
    slave.sync.arrived(["T"])
    assert rests()


@pytest.mark.rule("H12")
async def test_h12_never_two_rounds_at_a_time(master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "GAP_S", 0.0)

    def arrive(command: Command) -> None:
        slave.sync.arrived([f"U{len(master.asked)}"])

    master.react = dict.fromkeys((21, 31001, 45, 201), arrive)
    await slave.run_seldom()
    slave.sync.master = master.address
    await until(lambda: len(master.asked) >= 20)
    await slave.sync.close()
    assert master.asked[:20] == [21, 31001, 45, 201] * 5


def test_parts_that_fail_for_one_reason_are_named_together() -> None:
    status = metadata_sync.SyncStatus(failures={"topics": "cut off", "groups": "too many", "queue ends": "cut off"})
    assert status.why == "topics, queue ends: cut off; groups: too many"
    status.refused_commits = "the master does not take 2 offsets"
    assert status.why == "topics, queue ends: cut off; groups: too many; the master does not take 2 offsets"
