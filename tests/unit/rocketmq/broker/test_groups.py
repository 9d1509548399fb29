from __future__ import annotations

from typing import Any

import pytest

from support.stores import SteppingClock
from tallystick.rocketmq.broker.groups import SYSTEM_GROUPS, Groups
from tallystick.rocketmq.wire.bodies import GroupTable
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig


def table(*, auto_create: bool = True, slave: bool = False) -> tuple[Groups, list[int]]:
    changes: list[int] = []
    return Groups(SteppingClock(), lambda: changes.append(1), auto_create=auto_create, slave=slave), changes


def test_the_groups_of_the_start() -> None:
    groups, _ = table()
    assert tuple(groups.all) == SYSTEM_GROUPS


def test_a_group_makes_itself() -> None:
    groups, changes = table()
    assert groups.get("g") == GroupConfig("g")
    assert groups.get("g") is groups.all["g"]
    assert (len(changes), groups.version.counter) == (1, 1)


@pytest.mark.parametrize("name", ["", "a b", "../x", "g" * 256])
def test_no_group_makes_itself_with_such_a_name(name: str) -> None:
    groups, changes = table()
    assert groups.get(name) is None
    assert not changes


def test_where_groups_are_made_by_hand() -> None:
    groups, _ = table(auto_create=False)
    assert groups.get("g") is None
    groups.put(GroupConfig("g", retry_max_times=3))
    assert groups.get("g") == GroupConfig("g", retry_max_times=3)
    assert groups.delete("g")
    assert not groups.delete("g")
    assert groups.version.counter == 2


@pytest.mark.rule("H12")
def test_h12_a_slave_serves_a_group_that_its_master_lacks_without_entering_it() -> None:
    groups, changes = table(slave=True)
    version = DataVersion(0, 1, 4)
    groups.replace(GroupTable(version, {"m": GroupConfig("m")}, {"m": {"T": 1}}))
    assert groups.get("other") == GroupConfig("other")
    assert "other" not in groups.all
    assert (groups.version, len(changes)) == (version, 1)
    assert groups.table().forbidden == {"m": {"T": 1}}
    groups.replace(GroupTable(version, {"m": GroupConfig("m")}))
    assert len(changes) == 1


def test_no_more_groups_make_themselves_than_there_is_room_for() -> None:
    groups = Groups(SteppingClock(), lambda: None, most=len(SYSTEM_GROUPS) + 2)
    assert list(groups.get_all(["a", "bad name", "b", "c", "a"])) == ["a", "b"]
    assert groups.version.counter == 1
    assert groups.get("c") is None
    assert groups.get("a") == GroupConfig("a")


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [({}, True), ({"auto_create": False}, False), ({"slave": True}, False), ({"most": len(SYSTEM_GROUPS) + 1}, False)],
)
def test_a_group_lacks_room_that_would_make_itself(changes: dict[str, Any], lacks: bool) -> None:
    groups = Groups(SteppingClock(), lambda: None, **({"most": len(SYSTEM_GROUPS)} | changes))
    assert groups.lacks_room("g") == lacks
    assert not groups.lacks_room("bad name") and not groups.lacks_room(SYSTEM_GROUPS[0])
