from __future__ import annotations

import pytest

from support.stores import SteppingClock
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.topics import TopicDefaults, Topics
from tallystick.rocketmq.wire.bodies import GroupTable, TopicTable
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, TopicConfig

Config = TopicConfig | GroupConfig


class Shown:
    """Topics or groups, and how often they changed."""

    def __init__(self, kind: str) -> None:
        self.clock, self.changes = SteppingClock(), 0
        self.table: Topics | Groups
        if kind == "topics":
            self.table = Topics(TopicDefaults("b0", "c0"), self.clock, self._changed, standing=Standing(Role.SLAVE))
        else:
            self.table = Groups(self.clock, self._changed, standing=Standing(Role.SLAVE))

    def _changed(self) -> None:
        self.changes += 1

    def config(self, name: str, size: int = 1) -> Config:
        return TopicConfig(name, size) if isinstance(self.table, Topics) else GroupConfig(name, retry_max_times=size)

    def put(self, *configs: Config) -> None:
        self.table.put(*configs)  # type: ignore[arg-type]  # all of one kind

    def replace(self, version: DataVersion, *configs: Config) -> None:
        entries = {config.name: config for config in configs}
        if isinstance(self.table, Topics):
            self.table.replace(TopicTable(version, entries))  # type: ignore[arg-type]
        else:
            self.table.replace(GroupTable(version, entries))  # type: ignore[arg-type]


@pytest.fixture(params=["topics", "groups"])
def shown(request: pytest.FixtureRequest) -> Shown:
    return Shown(request.param)


def test_a_change_steps_the_version_and_is_told(shown: Shown) -> None:
    table, before = shown.table, shown.table.version
    shown.clock.ms += 5
    shown.put(shown.config("T"), shown.config("U", 2))
    assert table.version == DataVersion(0, before.timestamp + 5, before.counter + 1)
    assert (shown.changes, table.all["U"]) == (1, shown.config("U", 2))
    assert table.delete("T")
    assert (shown.changes, table.version.counter) == (2, 2)
    table.to_save()
    table.saved()
    assert not table.delete("T")
    assert (shown.changes, table.version.counter) == (2, 2)


@pytest.mark.rule("H12")
def test_h12_a_deletion_is_a_change_again_until_it_is_saved(shown: Shown) -> None:
    """Who asks for it a second time is told so when the disk has it, as the first one is."""
    table = shown.table
    shown.put(shown.config("T"))
    table.to_save()
    assert table.delete("T")  # while the text is being written
    table.saved()
    assert not table.delete("T")
    assert (shown.changes, table.version.counter) == (3, 2), "the table is the same, and so is its version"
    table.to_save()
    table.saved()
    assert not table.delete("T")
    assert shown.changes == 3


def test_what_was_made_is_fresh_until_it_is_saved(shown: Shown) -> None:
    shown.put(shown.config("T"))
    shown.table.to_save()
    shown.put(shown.config("U"), shown.config("T", 2))  # while the text is being written
    shown.table.saved()
    assert set(shown.table.fresh) == {"T", "U"}
    shown.table.to_save()
    shown.table.saved()
    assert not shown.table.fresh


@pytest.mark.rule("H12")
def test_h12_a_slave_takes_the_whole_table_and_its_version_in_one_step(shown: Shown) -> None:
    first, second = DataVersion(0, 77, 7), DataVersion(0, 78, 8)
    shown.replace(first, shown.config("A"), shown.config("B"))
    assert (shown.table.version, shown.changes) == (first, 1)
    for _ in range(2):
        shown.replace(second, shown.config("B", 2))
        assert shown.changes == 2  # no rewriting of what is the same
    assert dict(shown.table.all) == {**shown.table.system, "B": shown.config("B", 2)}


@pytest.mark.parametrize("name", ["T", "x" * 119])
def test_an_entry_takes_its_places_once_and_gives_them_back(shown: Shown, name: str) -> None:
    table, before = shown.table, shown.table.room()
    config = shown.config(name)
    assert table.more_places([config]) == table.places(config)  # type: ignore[list-item, arg-type]  # all of one kind
    for _ in range(2):
        table.put(config, peer="h:1")  # type: ignore[arg-type]
        assert table.room() == before - table.places(config)  # type: ignore[arg-type]
        assert table.more_places([config, config]) == 0  # type: ignore[list-item]
    table.delete(name)
    assert table.room() == before


def test_the_share_of_a_host_is_its_own_again_when_what_it_made_is_deleted(shown: Shown) -> None:
    table, before = shown.table, shown.table.room("h:1")
    names = [f"T{number}" for number in range(100)]
    table.put(*map(shown.config, names), peer="h:1")  # type: ignore[arg-type]
    assert table.room("h:1") < before
    table.delete(*names)
    assert table.room("h:1") == before


def test_the_room_beside_a_copied_table_is_that_of_the_copy(shown: Shown) -> None:
    before = shown.table.room()
    shown.replace(DataVersion(0, 77, 7), shown.config("A"), shown.config("B"))
    assert shown.table.room() == before - 2
    shown.replace(DataVersion(0, 78, 8), shown.config("B"))
    assert shown.table.room() == before - 1
