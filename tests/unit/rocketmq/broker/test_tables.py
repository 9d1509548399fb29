from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.admin_desk import SLAVE, Desk
from support.copied_offsets import lacking, take_over
from tallystick.errors import CorruptRecord, DiskFull
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, RESETS, TOPICS
from tallystick.rocketmq.broker.offsets import OffsetCommit
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import DelayTable, GroupTable, OffsetTable, TopicTable
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, TopicConfig
from tallystick.runtime.disk import read_file

RECORDED: dict[str, str] = json.loads(
    (Path(__file__).parents[3] / "wire" / "golden" / "rocketmq_remoting.json").read_text()
)["files"]


def text_of(desk: Desk, name: str) -> str:
    return read_file(desk.disk, f"/store/config/{name}").decode()


def recorded(name: str) -> str:
    return next(text for file, text in RECORDED.items() if name in file)


def test_topics_and_groups_are_on_the_disk_at_once() -> None:
    desk = Desk()
    desk.tables.topics.put(TopicConfig("T", 2, 2))
    desk.tables.groups.put(GroupConfig("g"))
    desk.disk.power_loss()
    desk.shelf.open()
    desk.restart()
    assert desk.tables.topics.get("T") == TopicConfig("T", 2, 2)
    assert desk.tables.topics.version.counter == 1
    assert "g" in desk.tables.groups.all
    assert desk.topics_changed == 1


@pytest.mark.parametrize("slave", [False, True])
def test_where_a_group_begins_or_goes_back_to_is_urgent(slave: bool) -> None:
    """A crash that costs a later commit brings messages again: one that costs these passes over some."""
    desk = Desk(SLAVE) if slave else Desk()
    tables = desk.tables
    tables.changed = lambda: None  # nothing is saved by itself
    for offset, is_urgent in ((7, True), (8, False), (8, False), (3, True), (4, False)):
        tables.offsets.commit("T", "g", 0, offset)
        assert tables.is_urgent(CONSUMER_OFFSETS) is is_urgent
        assert tables.is_urgent(RESETS) is (offset == 3 and not slave), "its file has all counters, and this one steps"
        for name in tables.unsaved_files():
            list(tables.text(name))
    tables.offsets.commit("T", "g", 0, 9, went_back=True)
    assert tables.is_urgent(CONSUMER_OFFSETS), "it was higher at a slave"
    list(tables.text(CONSUMER_OFFSETS))
    tables.offsets.take(OffsetCommit("T", "g", 1, 5))
    assert tables.is_urgent(CONSUMER_OFFSETS)


def test_offsets_are_saved_when_asked_for() -> None:
    desk = Desk()
    desk.tables.offsets.commit("T", "g", 0, 6)
    desk.save()
    desk.tables.offsets.commit("T", "g", 0, 7)
    desk.restart()
    assert desk.tables.offsets.get("T", "g", 0) == 6
    desk.tables.offsets.commit("T", "g", 0, 8)
    desk.save()
    assert desk.tables.unsaved_files() == []
    desk.restart()
    assert desk.tables.offsets.get("T", "g", 0) == 8


def test_an_offset_that_is_set_on_purpose_is_urgent_until_a_text_of_its_own_file_has_it() -> None:
    """The file of the counters may take a reset along while the offsets are between two saves."""
    desk = Desk()
    tables = desk.tables
    tables.changed = lambda: None  # nothing is saved by itself
    tables.topics.put(TopicConfig("T", 1, 1))
    assert tables.unsaved_files(urgent=True) == [TOPICS]
    tables.offsets.reset("T", "g", 0, 7)
    list(tables.text(TOPICS))
    assert tables.unsaved_files(urgent=True) == [RESETS, CONSUMER_OFFSETS]
    list(tables.text(RESETS))
    assert tables.unsaved_files(urgent=True) == [CONSUMER_OFFSETS]
    text = tables.text(CONSUMER_OFFSETS)
    next(text)
    tables.offsets.reset("T", "g", 0, 8)  # perhaps behind the piece that has its line
    list(text)
    assert tables.unsaved_files(urgent=True) == [RESETS, CONSUMER_OFFSETS]
    for name in tables.unsaved_files(urgent=True):
        list(tables.text(name))
    tables.failed(CONSUMER_OFFSETS)
    assert tables.is_urgent(CONSUMER_OFFSETS) and tables.unsaved_files(urgent=True) == [CONSUMER_OFFSETS]
    list(tables.text(CONSUMER_OFFSETS))
    tables.offsets.commit("T", "g", 0, 9)
    tables.failed(CONSUMER_OFFSETS)
    list(tables.text(CONSUMER_OFFSETS))
    tables.offsets.commit("T", "g", 0, 10)
    assert tables.unsaved_files(urgent=True) == []  # a commit alone is saved every few seconds


@pytest.mark.rule("H12")
def test_h12_what_a_slave_copies_is_there_after_its_restart() -> None:
    desk = Desk(SLAVE)
    version, text = DataVersion(0, 9, 9), b'{"dataVersion":{"counter":3},"offsetTable":{"2":1}}'
    desk.tables.topics.replace(TopicTable(version, {"T": TopicConfig("T")}))
    desk.tables.groups.replace(GroupTable(version, {"g": GroupConfig("g")}))
    desk.tables.delays.take(text, dialect.read_as(text, DelayTable))
    desk.tables.offsets.commit("T", "g", 0, 8)
    desk.save()
    assert text_of(desk, DELAY_OFFSETS) == text.decode()
    desk.restart()
    assert (desk.tables.topics.version, desk.tables.groups.version) == (version, version)
    assert desk.tables.topics.get("T") is not None
    assert desk.tables.delays.table.offsets == {2: 1}
    assert [commit.offset for commit in lacking(desk.tables.offsets, desk.tables.offsets.table())] == []
    assert desk.tables.offsets.to_save().own == {"T@g": {0: 8}}


def test_a_table_that_cannot_be_saved_is_saved_later() -> None:
    desk = Desk()
    desk.disk.fault = lambda operation, path: DiskFull("no room") if operation == "write" else None
    desk.tables.topics.put(TopicConfig("T"))
    assert desk.tables.topics.get("T") is not None
    assert desk.topics_changed == 1
    assert desk.tables.unsaved_files(urgent=True) == [TOPICS]
    desk.disk.fault = None
    desk.save()
    assert desk.tables.unsaved_files() == []
    desk.restart()
    assert desk.tables.topics.get("T") is not None


def test_offsets_that_were_cut_are_on_the_disk_before_the_log_grows_again() -> None:
    desk = Desk()
    desk.tables.offsets.commit("T", "g", 0, 50)
    desk.save()
    for end in (40, 60):  # the log lost its tail, and new messages came before the next crash
        desk.ends["T", 0] = end
        desk.disk.power_loss()
        desk.shelf.open()
        desk.restart()
        assert desk.tables.offsets.get("T", "g", 0) == 40
    assert [event["offset"] for event in desk.said("consumer offset cut")] == [50]


def test_offsets_that_were_cut_and_found_no_room_are_saved_later() -> None:
    desk = Desk()
    desk.tables.offsets.commit("T", "g", 0, 50)
    desk.save()
    desk.ends["T", 0] = 40
    desk.disk.fault = lambda operation, path: DiskFull("no room") if operation == "write" else None
    desk.restart()
    assert desk.tables.offsets.get("T", "g", 0) == 40
    assert CONSUMER_OFFSETS in desk.tables.unsaved_files()
    desk.disk.fault = None
    desk.save()
    desk.restart()
    assert len(desk.said("consumer offset cut")) == 1


def test_what_the_saver_gives_back_is_given_again() -> None:
    desk = Desk()
    desk.tables.failed(CONSUMER_OFFSETS)
    desk.tables.failed(DELAY_OFFSETS)
    desk.tables.failed(TOPICS)
    assert desk.tables.unsaved_files() == [TOPICS, CONSUMER_OFFSETS, DELAY_OFFSETS]
    assert desk.tables.unsaved_files(urgent=True) == [TOPICS]
    desk.save()
    assert desk.tables.unsaved_files() == []


@pytest.mark.parametrize("name", [TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS])
def test_the_originals_files_are_read_and_written_in_its_form(name: str) -> None:
    original = recorded(name)
    desk = Desk()
    desk.files.save(name, original.encode())
    desk.restart()
    ours = b"".join(desk.tables.text(name))
    assert dialect.read(ours) == dialect.read(original)


def test_a_damaged_table_is_no_empty_table() -> None:
    desk = Desk()
    for name in (TOPICS, TOPICS + ".bak"):
        desk.files.save(name, b"{{")
    with pytest.raises(CorruptRecord, match=r"topics\.json"):
        desk.restart()


def test_counters_that_a_slave_copied_are_saved_before_the_offsets() -> None:
    desk = Desk(SLAVE)
    take_over(desk.tables.offsets, OffsetTable(DataVersion(0, 5, 5), {"T@g": {0: 9}}), ResetTable(2, {"T@g": {0: 3}}))
    assert desk.tables.unsaved_files() == [RESETS, CONSUMER_OFFSETS]
    assert desk.tables.unsaved_files(urgent=True) == []
    desk.save()
    desk.restart()
    assert desk.tables.offsets.resets.get("T@g", 0) == 3
