"""When tables are saved, who waits for it, and what happens when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers import benched, pull_command, send_command
from support.saving import GatedDisk, answered, beat, create
from support.stores import SteppingClock
from support.waiting import until
from support.workers import WorkerAtOnce
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.broker import saver as saver_module
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, GROUPS, LOCKS, RESETS, TOPICS, ConfigFiles
from tallystick.rocketmq.broker.resets import STRIDE
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.rocketmq.remoting import slices
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import GroupConfig, PullFlag, RequestCode, TopicConfig
from tallystick.runtime.disk import File, OsDisk
from tallystick.runtime.events import Events


def on_disk(folder: Path, name: str) -> Any:
    return dialect.read((folder / "b0" / "config" / name).read_text())


async def test_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        first = await bench.broker(bench.settings(broker_id=0))
        first.parts.offsets.commit("T", "G", 0, 0)
        await first.stop()
        assert (await bench.broker()).parts.offsets.get("T", "G", 0) == 0


NEW_GROUP = pull_command("Old", group="group-0")
REFUSED = pull_command("Nowhere", group="group-0")


@pytest.mark.parametrize(
    ("asked", "code"),
    [(create("New"), 0), (send_command("New"), 0), (beat(1), 0), (NEW_GROUP, 0), (REFUSED, 17)],
    ids=["create", "send", "heartbeat", "pull", "refused pull"],
)
async def test_who_makes_something_is_answered_when_it_is_on_the_disk_and_nobody_else_waits(
    tmp_path: Path, asked: Command, code: int
) -> None:
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        peer, other = [await bench.peer(await bench.broker(disk=disk)), await bench.peer(bench.brokers[0])]
        assert (await other.ask(send_command("Old"))).code == 0
        assert (await other.ask(pull_command("Old", group="known"))).code == 0
        with disk.shut():
            opaque = peer.send(asked)
            is_topic = asked.code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.SEND_MESSAGE_V2)
            again = peer.send(asked) if is_topic else opaque  # a second one waits too
            assert not await answered(peer, opaque)
            assert not await answered(peer, again)
            assert (await other.ask(send_command("Old"))).code == 0
            assert (await other.ask(pull_command("Old", group="known"))).code == 0
        assert (await peer.answer(opaque)).code == code
        topics, groups = on_disk(tmp_path, TOPICS), on_disk(tmp_path, GROUPS)
        assert "New" in topics["topicConfigTable"] or "group-0" in groups["subscriptionGroupTable"]


async def test_who_changes_nothing_waits_for_no_save(tmp_path: Path) -> None:
    """Also where others have changed something: a disk that is late would hold up every question."""
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer, other = await bench.peer(broker), await bench.peer(broker)
        assert (await peer.ask(create("Old"))).code == 0
        with disk.shut():
            waits = peer.send(create("New"))
            assert (await other.code(RequestCode.GET_ALL_TOPIC_CONFIG, {})).code == 0
            assert not await answered(peer, waits)
        assert (await peer.answer(waits)).code == 0


async def test_a_held_pull_whose_group_was_deleted_reads_when_the_group_it_makes_is_saved(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer, other = await bench.peer(broker), await bench.peer(broker)
        assert (await other.ask(send_command("Old"))).code == 0
        flags = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
        waiting = peer.send(pull_command("Old", group="group-0", offset=1, flags=flags, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 1)
        broker.tables.groups.delete("group-0")
        await broker._saver.save()
        with disk.shut():
            assert (await other.ask(send_command("Old"))).code == 0
            await until(lambda: "group-0" in broker.tables.groups.all)
            assert not await answered(peer, waiting), "a crash would take the group away"
        assert (await peer.answer(waiting)).code == 0
        assert "group-0" in on_disk(tmp_path, GROUPS)["subscriptionGroupTable"]


async def test_all_changes_of_a_moment_are_one_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that come while another one is written wait for it alone, for no period."""
    monkeypatch.setattr(saver_module, "PERIOD_S", 3600.0)
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker(disk=disk))
        with disk.shut():
            await answered(peer, peer.send(create("First")))  # its save has begun
            opaques = [peer.send(beat(300)), *(peer.send(send_command(f"T{number}")) for number in range(50))]
            await answered(peer, 0)
        for opaque in opaques:
            assert (await peer.answer(opaque)).code == 0
        assert sorted(set(disk.written)) == [GROUPS, LOCKS, TOPICS]
        assert disk.written.count(LOCKS) == 1, "at the start"
        assert disk.written.count(TOPICS) <= 3
        assert disk.written.count(GROUPS) == 1
        groups = on_disk(tmp_path, GROUPS)["subscriptionGroupTable"]
        assert sum(name.startswith("group-") for name in groups) == 300


async def test_a_full_disk_is_said_and_what_was_made_is_saved_later(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer = await bench.peer(broker)
        disk.full = True
        refused = await peer.ask(create("New"))
        assert (refused.code, refused.remark) == (1, refused.remark)
        assert "cannot be saved: no room" in (refused.remark or "")
        assert (await peer.ask(send_command("New"))).code == 10
        assert [event.fields["file"] for event in bench.told if event.kind == "table not saved"] == [TOPICS]
        disk.full = False
        await broker._saver.save()
        assert (await peer.ask(send_command("New"))).code == 0
        assert "New" in on_disk(tmp_path, TOPICS)["topicConfigTable"]


@pytest.mark.rule("H12")
@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Old", "cleanOffset": "false"}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Old"}),
    ],
)
async def test_h12_who_asks_again_for_a_deletion_waits_for_the_disk_as_well(
    tmp_path: Path, code: RequestCode, fields: dict[str, str]
) -> None:
    """It was there no more, and so the second answer was yes; a loss of power brought it back."""
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        broker.parts.groups.put(GroupConfig("Old"))
        broker.parts.topics.put(TopicConfig("Old"))
        await broker._saver.save()
        peer = await bench.peer(broker)
        disk.full = True
        for _ in range(2):
            refused = await peer.code(code, fields)
            assert refused.code == 1 and "cannot be saved: no room" in (refused.remark or "")
        disk.full = False
        assert (await peer.code(code, fields)).code == 0
        files = on_disk(tmp_path, GROUPS)["subscriptionGroupTable"], on_disk(tmp_path, TOPICS)["topicConfigTable"]
        assert sum("Old" in file for file in files) == 1
        written = [disk.written.count(file) for file in (GROUPS, TOPICS)]
        assert (await peer.code(code, fields)).code == 0
        assert [disk.written.count(file) for file in (GROUPS, TOPICS)] == written, "nothing waits any more"


async def test_a_pull_whose_group_cannot_be_saved_brings_no_messages(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer = await bench.peer(broker)
        assert (await peer.ask(send_command("Old"))).code == 0
        disk.full = True
        refused = await peer.ask(NEW_GROUP)
        assert (refused.code, bytes(refused.body)) == (1, b"")
        assert "the group was made, but cannot be saved: no room" in (refused.remark or "")
        assert (await peer.ask(NEW_GROUP)).code == 0, "it is there, though a crash would take it away: reads go on"
        assert broker._server.memory.kept_bytes == 0


async def test_who_makes_a_group_and_leaves_is_waited_for_by_nobody(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer, other = await bench.peer(broker), await bench.peer(broker)
        assert (await other.ask(send_command("Old"))).code == 0
        with disk.shut():
            peer.send(NEW_GROUP)
            await until(lambda: broker._server.memory.kept_bytes > 0)
            peer.writer.close()
            await until(lambda: broker._server.memory.kept_bytes == 0)
        assert (await other.ask(NEW_GROUP)).code == 0


async def test_offsets_that_could_not_be_saved_are_tried_again(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        broker.parts.offsets.commit("T", "G", 0, 7)
        disk.full = True
        await broker._saver.save()
        await broker._saver.save()
        assert [event.fields["file"] for event in bench.told if event.kind == "table not saved"] == [CONSUMER_OFFSETS]
        disk.full = False
        await broker._saver.save()
        assert on_disk(tmp_path, CONSUMER_OFFSETS)["offsetTable"] == {"T@G": {"0": 7}}
        assert not broker.parts.offsets.dirty


async def test_what_was_not_saved_is_told_nobody_and_what_was_is_though_offsets_were_not(tmp_path: Path) -> None:
    class Changed(BrokerTables):
        changes = 1

        def __init__(self) -> None:
            self.changed = lambda: None

        def unsaved_files(self, *, urgent: bool = False) -> list[str]:
            return [TOPICS, CONSUMER_OFFSETS]

        def text(self, name: str) -> Iterator[bytes]:
            return iter([b"{}"])

        def saved(self, name: str) -> None:
            pass

        def failed(self, name: str) -> None:
            pass

        def is_urgent(self, name: str) -> bool:
            return name == TOPICS

    disk, told = GatedDisk(), list[StorageError | None]()
    saver = Saver(Changed(), ConfigFiles(disk, str(tmp_path)), SteppingClock(), Events(), WorkerAtOnce())
    disk.full = True
    await saver.save()
    saver.after(1, told.append)
    assert told == [], "a crash would take it away"
    disk.full, disk.unfit = False, CONSUMER_OFFSETS
    await saver.save()
    assert told == [None], "nobody waits for a later commit"
    saver.after(1, told.append)
    assert told == [None, None], "at once"
    await saver.close()


async def test_an_offset_that_is_set_on_purpose_is_on_the_disk_with_its_counter(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        broker.parts.offsets.commit("T", "G", 0, 70)
        broker.parts.offsets.reset("T", "G", 0, 100)
        done = asyncio.Event()
        broker._saver.when_saved(lambda error: done.set())
        await done.wait()
        assert on_disk(tmp_path, CONSUMER_OFFSETS)["offsetTable"] == {"T@G": {"0": 100}}
        assert on_disk(tmp_path, RESETS)["counts"] == {"T@G": {"0": STRIDE}}


async def test_who_sets_an_offset_hears_when_the_offsets_cannot_be_saved(tmp_path: Path) -> None:
    class NoRoomForOffsets(OsDisk):
        def open(self, path: str, **how: bool) -> File:
            if path.endswith(f"{CONSUMER_OFFSETS}.new"):
                raise DiskFull("no room", path=path)
            return super().open(path, **how)

    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=NoRoomForOffsets())
        broker.parts.offsets.reset("T", "G", 0, 100)
        heard: list[Any] = []
        broker._saver.when_saved(heard.append)
        await until(lambda: heard)
        assert isinstance(heard[0], DiskFull)


async def test_between_two_saves_of_everything_is_a_period(tmp_path: Path) -> None:
    class Counted(BrokerTables):
        def __init__(self) -> None:
            self.changes, self.changed, self.asked = 0, lambda: None, list[bool]()

        def unsaved_files(self, *, urgent: bool = False) -> list[str]:
            self.asked.append(urgent)
            return []

    clock, tables = SteppingClock(), Counted()
    saver = Saver(tables, ConfigFiles(OsDisk(), str(tmp_path)), clock, Events(), WorkerAtOnce())
    saver.start()
    await asyncio.sleep(0)
    for periods in range(1, 4):
        clock.ms += round(1000 * saver_module.PERIOD_S)
        tables.changed()
        for _ in range(20):
            await asyncio.sleep(0)
        assert tables.asked.count(False) == periods
    for _ in range(3):  # what is urgent comes more often, and puts the rest off no further
        clock.ms += round(400 * saver_module.PERIOD_S)
        tables.changed()
        for _ in range(20):
            await asyncio.sleep(0)
    assert tables.asked.count(False) == 4
    await saver.close()


async def test_who_waits_has_it_saved_at_once_also_what_failed_before(tmp_path: Path) -> None:
    class Failed(BrokerTables):
        changes = 1

        def __init__(self) -> None:
            self.changed = lambda: None

        def unsaved_files(self, *, urgent: bool = False) -> list[str]:
            return []

    saver = Saver(Failed(), ConfigFiles(OsDisk(), str(tmp_path)), SteppingClock(), Events(), WorkerAtOnce())
    saver.start()
    await asyncio.sleep(0)
    told: list[StorageError | None] = []
    saver.after(1, told.append)
    for _ in range(20):
        await asyncio.sleep(0)
    assert told == [None]
    await saver.close()


async def test_the_loop_has_turns_while_very_many_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        told: list[StorageError | None] = []
        for _ in range(3):
            broker._saver.when_saved(told.append)
        turns: list[int] = []

        def turn() -> None:
            turns.append(len(told))
            if len(told) < 3:
                asyncio.get_running_loop().call_soon(turn)

        turn()
        await until(lambda: len(told) == 3)
        assert {1, 2} <= set(turns)


async def test_no_more_than_so_many_answers_wait_for_a_disk_that_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changed(BrokerTables):
        changes = 1

        def __init__(self) -> None:
            self.changed = lambda: None

        def unsaved_files(self, *, urgent: bool = False) -> list[str]:
            return []

    monkeypatch.setattr(saver_module, "MOST_WAITING", 2)
    saver = Saver(Changed(), ConfigFiles(OsDisk(), str(tmp_path)), SteppingClock(), Events(), WorkerAtOnce())
    told: list[StorageError | None] = []
    for _ in range(2):
        saver.when_saved(told.append)
        saver.after(1, told.append)
        assert not told, "they wait"
        saver.when_saved(told.append)
        saver.after(1, told.append)
        assert len(told) == 2 and None not in told, "these cannot"
        await saver.save()
        assert told[2:] == [None, None]
        saver._saved_change = 0
        told.clear()
    await saver.close()


async def test_the_loop_has_turns_while_a_long_table_becomes_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        for number in range(10 * dialect.PIECE_VALUES):
            broker.parts.offsets.commit("T", f"g{number}", 0, 1)
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn)

        taken: dict[str, int] = {}
        text = broker.tables.text

        def counted(name: str) -> Iterator[bytes]:
            before = turns
            yield from text(name)
            taken[name] = turns - before

        monkeypatch.setattr(broker.tables, "text", counted)
        turn()
        await broker._saver.save()
        assert taken[CONSUMER_OFFSETS] >= 20


async def test_what_is_not_saved_when_it_stops_is_saved_then(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(broker_id=0))
        broker.parts.offsets.commit("T", "G", 0, 7)
        broker.tables.groups.get("made", "127.0.0.1:4711")
        await broker.stop()
        assert "made" in on_disk(tmp_path, GROUPS)["subscriptionGroupTable"]
        assert on_disk(tmp_path, CONSUMER_OFFSETS)["offsetTable"] == {"T@G": {"0": 7}}


async def test_a_long_table_counts_as_saved_when_it_is_on_the_disk_and_no_sooner(tmp_path: Path) -> None:
    """Who made a topic is answered by that."""
    path, saw = tmp_path / "config" / TOPICS, list[bool]()

    class Long(BrokerTables):
        def __init__(self) -> None:
            self.changes, self.changed = 0, lambda: None

        def unsaved_files(self, *, urgent: bool = False) -> list[str]:
            return [] if saw else [TOPICS]

        def text(self, name: str) -> Iterator[bytes]:
            return (b"x" for _ in range(3 * saver_module.AT_ONCE))

        def saved(self, name: str) -> None:
            saw.append(path.exists())

    files = ConfigFiles(OsDisk(), str(tmp_path))
    saver = Saver(Long(), files, SteppingClock(), Events(), WorkerAtOnce())
    await saver.save()
    assert saw == [True]
    await saver.close()
