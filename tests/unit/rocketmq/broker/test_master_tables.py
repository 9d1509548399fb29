from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.table_peers import PROVEN, Master, Slave
from tallystick.errors import StorageError
from tallystick.rocketmq.broker import master_tables, offset_pages, table_parts
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS
from tallystick.rocketmq.broker.resets import STRIDE, ResetTable
from tallystick.rocketmq.remoting import slices
from tallystick.rocketmq.wire import bodies, dialect
from tallystick.rocketmq.wire.bodies import GroupTable, OffsetTable, OffsetTablePart, TopicTableResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, RequestCode, ResponseCode, TopicConfig

# Whose tables (``copy_proof``)


@pytest.mark.rule("H12")
async def test_h12_another_process_at_the_masters_address_is_not_copied(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T"))
    master.instance = "second"  # it was restarted, and the slave has not noticed yet
    master.restart()
    assert "another process is the master here by now" in (await slave.copy(master))["topics"]
    assert slave.sync.status.failures.keys() == {"topics", "consumer offsets", "delay offsets", "groups"}
    assert slave.tables.topics.get("T") is None


@pytest.mark.rule("H12")
async def test_h12_without_a_link_that_feeds_the_log_nothing_is_asked(master: Master, slave: Slave) -> None:
    slave.link = replace(PROVEN, link=0, why="cannot connect to m:1")
    failures = [await slave.copy(master) for _ in range(3)][-1]
    assert failures == {"all tables": slave.sync.status.failures["all tables"]}
    assert failures["all tables"].endswith("continuation: cannot connect to m:1")
    assert master.asked == []
    assert len(slave.said("metadata not copied")) == 1


@pytest.mark.rule("H12")
async def test_h12_what_came_while_the_link_was_lost_replaces_nothing(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T"))

    def lose(command: Command) -> None:
        slave.link = replace(PROVEN, link=2)

    master.react[21] = lose
    assert "lost sight of" in (await slave.copy(master))["topics"]
    assert slave.tables.topics.get("T") is None


@pytest.mark.rule("H12")
@pytest.mark.parametrize(("end", "taken"), [(399, False), (400, True)])
async def test_h12_an_original_master_is_copied_when_its_log_is_no_shorter(
    master: Master, slave: Slave, end: int, taken: bool
) -> None:
    master.tables.topics.put(TopicConfig("T"))
    body = dialect.write({"table": {"commitLogMaxOffset": str(end)}})
    master.react[28] = lambda command: command.response(0, body=body)
    master.react[31001] = lambda command: command.response(3, "request type 31001 not supported")
    master.become_original()
    slave.link = replace(PROVEN, proven=False, master_hello=None)
    failures = await slave.copy(master)
    assert (slave.tables.topics.get("T") is not None) is taken
    assert (failures == {}) is taken
    assert taken or "it lost messages" in failures["topics"]


@pytest.mark.rule("H12", "H13")
async def test_h12_a_master_of_ours_whose_hello_came_late_is_not_copied_as_an_original(
    master: Master, slave: Slave
) -> None:
    """Its log had lost its tail, and it took a commit that was of other messages."""
    master.tables.topics.put(TopicConfig("T"))
    master.react[28] = lambda command: command.response(0, body=dialect.write({"table": {"commitLogMaxOffset": "900"}}))
    slave.link = replace(PROVEN, proven=False)
    failures = await slave.copy(master)
    assert failures.keys() == {"topics", "consumer offsets", "delay offsets", "groups"}
    assert "the logs are to be compared first" in failures["topics"]
    assert slave.tables.topics.get("T") is None


@pytest.mark.rule("H12")
async def test_h12_a_slave_without_a_message_takes_tables_at_once(master: Master, slave: Slave) -> None:
    master.tables.topics.put(TopicConfig("T"))
    slave.link = replace(PROVEN, link=0, end=0, master_hello=None)
    assert await slave.copy(master) == {}
    assert slave.tables.topics.get("T") is not None


# Pages


async def test_offsets_come_in_pages(master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_pages, "PAGE_KEYS", 3)
    for number in range(10):
        master.tables.offsets.commit("T", f"g{number}", 0, number)
        master.tables.offsets.set_pull_offset("U", f"g{number}", 0, number)
    assert await slave.copy(master) == {}
    assert slave.tables.offsets.table() == master.tables.offsets.table()
    assert master.asked.count(31001) == 8


@pytest.mark.parametrize("group", ["g1", "new"])
async def test_offsets_that_change_between_two_pages_are_all_there(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setattr(offset_pages, "PAGE_KEYS", 3)
    for number in range(10):
        master.tables.offsets.commit("T", f"g{number}", 0, number)
        master.tables.offsets.set_pull_offset("U", f"g{number}", 0, number)

    def change(command: Command) -> None:
        if master.asked.count(31001) == 3:
            master.tables.offsets.commit("T", group, 0, 99)
            list(master.tables.offsets.forgetting_group("g0")) if group == "g1" else None

    master.react[31001] = change
    assert await slave.copy(master) == {}
    if group == "g1":  # of what changed or went behind the reader the next round hears
        assert await slave.copy(master) == {}
    assert slave.tables.offsets.table() == master.tables.offsets.table()


def lose_offsets(master: Master, count: int) -> None:
    """Resets are on the disk and the offsets that they set are not, when the master crashes."""
    master.disk.fault = lambda _, path: StorageError("simulated", path=path) if CONSUMER_OFFSETS in path else None
    offsets = master.tables.offsets
    for number in range(count):
        offsets.reset("T", f"lost{number}", 3, 10)
        offsets.resets.pending.put(f"T@lost{number}", {3: 10})
    master.save()
    master.disk.fault = None
    master.restart()
    assert master.tables.offsets.committed_offsets == {}


@pytest.mark.rule("H12", "H13")
@pytest.mark.parametrize("page_keys", [3, 1000])
async def test_h12_resets_whose_offsets_a_crash_of_the_master_took_are_copied(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch, page_keys: int
) -> None:
    """Found by the simulator: they came with the offsets alone."""
    monkeypatch.setattr(offset_pages, "PAGE_KEYS", page_keys)
    lose_offsets(master, 10)
    for _ in range(2):
        assert await slave.copy(master) == {}
        assert slave.tables.offsets.resets.table() == master.tables.offsets.resets.table()
        assert slave.tables.offsets.counter("T@lost7", 3) == STRIDE
        master.tables.offsets.set_pull_offset("U", "g", 0, 7)
        master.tables.offsets.commit("T", "lost7", 3, 12)


async def test_resets_without_offsets_that_are_committed_or_deleted_between_two_pages_are_all_there(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_pages, "PAGE_KEYS", 3)
    lose_offsets(master, 10)

    def change(command: Command) -> None:
        if master.asked.count(31001) == 3:  # the first was that of the offsets
            master.tables.offsets.commit("T", "lost9", 3, 12)
            list(master.tables.offsets.forgetting_group("lost0"))

    master.react[31001] = change
    assert await slave.copy(master) == {}
    copied = slave.tables.offsets.resets
    assert all(copied.get(f"T@lost{number}", 3) == STRIDE for number in range(1, 10))


def without_pages(master: Master) -> None:
    master.react[31001] = lambda command: command.response(3, "request type 31001 not supported")


async def test_a_master_without_pages_sends_all_offsets_at_once(master: Master, slave: Slave) -> None:
    without_pages(master)
    master.tables.offsets.commit("T", "g", 0, 7)
    assert await slave.copy(master) == {}
    assert slave.tables.offsets.get("T", "g", 0) == 7


async def test_a_master_whose_pages_do_not_go_on_is_not_asked_for_ever(master: Master, slave: Slave) -> None:
    fields = {"snapshot": "s", "next": "0"}
    master.react[31001] = lambda command: command.response(0, fields=fields, body=b"{}")
    failures = await slave.copy(master)
    assert "go back" in failures["consumer offsets"]
    assert master.asked.count(31001) == 1


async def test_pages_without_end_are_refused_when_they_have_more_than_a_table_can_have(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever a name server calls a master filled the memory of an empty slave with 40 MB a second."""
    monkeypatch.setattr(master_tables, "MAX_NAMES", 100)
    slave.tables.offsets.most = 100

    def endless(command: Command) -> Command:
        start = int(command.fields["start"])
        names = range(start, start + 10)
        pages: dict[str, object] = {
            offset_pages.OFFSETS: offset_pages.OffsetPage(DataVersion(), {f"T{name}@g": {} for name in names}),
        }
        fields = {"snapshot": "s", "next": str(start + 10)}
        return command.response(0, fields=fields, body=dialect.write_strict(pages[command.fields["table"]]))

    def many(command: Command) -> Command:
        start = int(command.fields["topicSeq"])
        topics = {f"T{name}": TopicConfig(f"T{name}") for name in range(start, start + 10)}
        return command.response(
            0, fields={"totalTopicNum": "1000000000"}, body=dialect.write(TopicTableResponse(DataVersion(9), topics))
        )

    master.react[31001], master.react[RequestCode.GET_ALL_TOPIC_CONFIG] = endless, many
    failures = await slave.copy(master)
    assert "maxOffsets here allows 300" in failures["consumer offsets"]
    assert "one may have 100" in failures["topics"]


@pytest.mark.parametrize("write", [dialect.write, dialect.write_strict], ids=["bare keys", "strict"])
async def test_the_loop_has_turns_while_all_offsets_are_read(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch, write: Callable[[object], bytes]
) -> None:
    offsets = {f"topic{number}@group": dict.fromkeys(range(8), number) for number in range(10_000)}
    text = write(
        OffsetTable(
            DataVersion(3, 4, 5),
            offsets,
            {"topic0@group": {0: 9}},
            {f"group{number}": ["topic0"] for number in range(10_000)},
        )
    )
    without_pages(master)
    master.react[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda command: command.response(0, body=text)
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    monkeypatch.setattr(table_parts, "PART_BYTES", 10_000)
    turns = 0
    read = dialect.read_as

    def counted(data: Any, kind: Any, **how: Any) -> Any:
        nonlocal turns
        if kind is OffsetTablePart:
            assert len(data) < 11_000
            asyncio.get_running_loop().call_soon(lambda: seen.append(turns))
            turns += 1
            assert len(seen) >= turns - 2, "the loop had a turn after each part"
        return read(data, kind, **how)

    seen: list[int] = []
    monkeypatch.setattr(dialect, "read_as", counted)
    assert await slave.copy(master) == {}
    assert turns > 50
    assert slave.tables.offsets.committed_offsets == offsets
    assert slave.tables.offsets.pull_offsets == {"topic0@group": {0: 9}}
    assert slave.tables.offsets.version == DataVersion(3, 4, 5)


async def test_the_loop_has_turns_while_a_page_of_whoever_is_called_a_master_is_read(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page has 16 MiB at most, which was a turn of 400 ms."""
    topics = {f"T{number}": TopicConfig(f"T{number}") for number in range(2000)}
    groups = GroupTable(DataVersion(8), {f"g{number}": GroupConfig(f"g{number}") for number in range(2000)}, {"g1": {}})
    offsets = {f"T{number}@g": {0: 1, 1: 2} for number in range(1000)}
    resets = ResetTable(7, {"T0@g": {0: 5}}, {"U": 6}, {f"g{number}": 7 for number in range(30)})
    page = offset_pages.OffsetPage(DataVersion(9), offsets, {"T1@g": {0: 3}}, resets)
    master.react[21] = lambda command: command.response(
        0, body=dialect.write_strict(TopicTableResponse(DataVersion(9), topics))
    )
    master.react[201] = lambda command: command.response(0, body=dialect.write_strict(groups))
    master.react[31001] = lambda command: (
        command.response(0, fields={"snapshot": "s"}, body=dialect.write_strict(page))
        if command.fields["table"] == offset_pages.OFFSETS
        else None
    )
    monkeypatch.setattr(table_parts, "PART_BYTES", 5000)
    read, longest, kinds = dialect.read_as, 0, set[Any]()

    def counted(data: Any, kind: Any, **how: Any) -> Any:
        nonlocal longest
        longest = max(longest, len(data))
        kinds.add(kind)
        return read(data, kind, **how)

    monkeypatch.setattr(dialect, "read_as", counted)
    assert await slave.copy(master) == {}
    assert longest < 5500
    assert kinds >= {bodies.TopicTablePart, bodies.GroupTablePart, offset_pages.OffsetPagePart}
    assert topics.items() <= slave.tables.topics.all.items()
    assert slave.tables.groups.table().groups.items() >= groups.groups.items()
    assert slave.tables.groups.table().forbidden == {"g1": {}}
    assert (slave.tables.offsets.committed_offsets, slave.tables.offsets.pull_offsets) == (offsets, {"T1@g": {0: 3}})
    assert slave.tables.offsets.resets.table() == resets


async def test_a_page_of_ends_of_queues_has_a_bound(master: Master, slave: Slave) -> None:
    """It is read at once."""
    slave.copy_queues()
    body = b'{"at":1,"ends":[%s]}' % b",".join([b'["T",0,1]'] * 30_000)
    master.react[31001] = lambda command: (
        command.response(0, fields={"snapshot": "s"}, body=body)
        if command.fields["table"] != offset_pages.OFFSETS
        else None
    )
    assert "too large" in (await slave.copy(master))["queue ends"]


@pytest.mark.parametrize("text", [b"{}", b'{"offsetTable":{}}', b'{"dataVersion":{}}', b'{"offsetTable":{"T@g":{'])
async def test_a_table_without_offsets_replaces_none(master: Master, slave: Slave, text: bytes) -> None:
    without_pages(master)
    slave.tables.offsets.commit("T", "g", 0, 7)
    master.react[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda command: command.response(0, body=text)
    assert "consumer offsets" in await slave.copy(master)
    assert slave.tables.offsets.get("T", "g", 0) == 7


@pytest.mark.rule("H13")
@pytest.mark.parametrize(("code", "asked"), [(0, [15]), (26, [15, 11, 15]), (1, [15])])
async def test_h13_only_for_a_group_that_the_master_lacks_it_is_made_by_a_pull(
    master: Master, slave: Slave, code: int, asked: list[int]
) -> None:
    codes = [code, 0]
    master.react[15] = lambda command: command.response(codes.pop(0))
    master.react[11] = lambda command: command.response(19)
    slave.tables.offsets.commit("T", "g", 0, 7)
    await slave.copy(master)
    assert [one for one in master.asked if one in (11, 15)] == asked
    assert (slave.tables.offsets.to_save().own is None) is (code != 1), "what was taken is told no more"


@pytest.mark.rule("H13")
@pytest.mark.parametrize(("pulled", "kept"), [(ResponseCode.NO_PERMISSION, 7), (26, None), (1, 7)])
async def test_h13_a_group_that_the_master_may_make_later_keeps_its_commits(
    master: Master, slave: Slave, pulled: int, kept: int | None
) -> None:
    """A broker may forbid reads for a while: the pull makes no group then, and says why."""
    slave.tables.offsets.commit("T", "g", 0, 7)
    master.react[15] = lambda command: command.response(26)
    master.react[11] = lambda command: command.response(pulled)
    assert await slave.copy(master) == {}
    assert slave.tables.offsets.get("T", "g", 0) == kept
    master.tables.topics.put(TopicConfig("T", 1, 1))
    master.tables.groups.put(GroupConfig("g"))
    master.react.clear()
    assert await slave.copy(master) == {}
    assert master.tables.offsets.get("T", "g", 0) == kept


@pytest.mark.rule("H12")
async def test_h12_offsets_that_are_asked_for_again_are_proven_again(master: Master, slave: Slave) -> None:
    """After the master was told of commits made here its table is read once more."""
    slave.tables.offsets.commit("T", "g", 0, 7)
    master.react[15] = lambda command: command.response(0)

    def lose(command: Command) -> None:
        if master.asked.count(31001) == 2:
            slave.link = replace(PROVEN, link=2)

    master.react[31001] = lose
    assert "lost sight of" in (await slave.copy(master))["consumer offsets"]
    assert master.asked.count(31001) == 2
    assert slave.tables.offsets.get("T", "g", 0) == 7
