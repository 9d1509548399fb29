from __future__ import annotations

from typing import Any

import pytest

from support.stores import SteppingClock
from tallystick.rocketmq.broker.groups import SYSTEM_GROUPS, Groups
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.wire.bodies import GroupTable
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig

PEER = "127.0.0.1:4711"


def table(*, auto_create: bool = True, slave: bool = False) -> tuple[Groups, list[int]]:
    changes: list[int] = []
    standing = Standing(Role.SLAVE if slave else Role.ASYNC_MASTER)
    return Groups(SteppingClock(), lambda: changes.append(1), auto_create=auto_create, standing=standing), changes


def test_the_groups_of_the_start() -> None:
    groups, _ = table()
    assert tuple(groups.all) == SYSTEM_GROUPS


def test_a_group_makes_itself() -> None:
    groups, changes = table()
    assert groups.get("g", PEER) == GroupConfig("g")
    assert groups.get("g", PEER) is groups.all["g"]
    assert (len(changes), groups.version.counter) == (1, 1)


@pytest.mark.parametrize("name", ["", "a b", "../x", "g" * 256])
def test_no_group_makes_itself_with_such_a_name(name: str) -> None:
    groups, changes = table()
    assert groups.get(name, PEER) is None
    assert not changes


def test_where_groups_are_made_by_hand() -> None:
    groups, _ = table(auto_create=False)
    assert groups.get("g", PEER) is None
    groups.put(GroupConfig("g", retry_max_times=3))
    assert groups.get("g", PEER) == GroupConfig("g", retry_max_times=3)
    assert groups.delete("g")
    assert not groups.delete("g")
    assert groups.version.counter == 2


@pytest.mark.rule("H12")
def test_h12_a_slave_serves_a_group_that_its_master_lacks_without_entering_it() -> None:
    groups, changes = table(slave=True)
    version = DataVersion(0, 1, 4)
    groups.replace(GroupTable(version, {"m": GroupConfig("m")}, {"m": {"T": 1}}))
    assert groups.get("other", PEER) == GroupConfig("other")
    assert "other" not in groups.all
    assert (groups.version, len(changes)) == (version, 1)
    assert groups.table().forbidden == {"m": {"T": 1}}
    groups.replace(GroupTable(version, {"m": GroupConfig("m")}))
    assert len(changes) == 1


def test_no_more_groups_make_themselves_than_there_is_room_for() -> None:
    groups = Groups(SteppingClock(), lambda: None, most=len(SYSTEM_GROUPS) + 2)
    assert list(groups.get_all(["a", "bad name", "b", "c", "a"], PEER)) == ["a", "b"]
    assert groups.version.counter == 1
    assert groups.get("c", PEER) is None
    assert groups.get("a", PEER) == GroupConfig("a")


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({}, True),
        ({"auto_create": False}, False),
        ({"standing": Standing(Role.SLAVE)}, False),
        ({"most": len(SYSTEM_GROUPS) + 1}, False),
    ],
)
def test_a_group_lacks_room_that_would_make_itself(changes: dict[str, Any], lacks: bool) -> None:
    groups = Groups(SteppingClock(), lambda: None, **({"most": len(SYSTEM_GROUPS)} | changes))
    assert groups.lacks_room("g", PEER) == lacks
    assert not groups.lacks_room("bad name", PEER) and not groups.lacks_room(SYSTEM_GROUPS[0], PEER)


def test_one_host_leaves_a_quarter_of_the_room_to_others() -> None:
    """Five heartbeats of one connection used up all groups of a broker, for good."""
    groups = Groups(SteppingClock(), lambda: None, most=len(SYSTEM_GROUPS) + 100)
    assert len(groups.get_all([f"x{number}" for number in range(70)], "h1:1")) == 70
    assert len(groups.get_all([f"y{number}" for number in range(70)], "h1:2")) == 5
    assert groups.get("z", "h1:3") is None and groups.lacks_room("z", "h1:3")
    assert len(groups.get_all([f"z{number}" for number in range(70)], "h2:1")) == 19
    assert groups.delete("x0", "x1", "never") and groups.get("z", "h2:3") is not None
    assert groups.version.counter == 5 and groups.room() == 7


def test_groups_that_made_themselves_and_are_idle_make_room() -> None:
    groups = Groups(SteppingClock(), lambda: None, most=len(SYSTEM_GROUPS) + 5)
    gone: list[str] = []
    idle = {"made by hand", "a", "b", "c"}
    groups.is_idle, groups.went = idle.__contains__, gone.extend
    groups.put(GroupConfig("made by hand"))
    assert len(groups.get_all(["used", "a", "b"], "h1:1")) == 3
    assert len(groups.get_all(["d"], "h2:1")) == 1
    assert list(groups.get_all(["b", "e"], "h2:1")) == ["b", "e"] and gone == ["a"], "not one that is asked for"
    assert groups.get("f", "h3:1") is not None and gone == ["a", "b"]
    assert groups.get("g", "h3:1") is None, "the others are in use, or were made by hand"


def test_so_many_idle_groups_make_room_in_a_minute_and_not_all_for_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger made new groups without end: all tables were saved, and all topics registered, again and again."""
    monkeypatch.setattr("tallystick.rocketmq.broker.groups.MOST_A_MINUTE", 8)
    clock = SteppingClock()
    groups = Groups(clock, lambda: None, most=len(SYSTEM_GROUPS) + 200)
    for host in range(200):
        groups.get_all([f"g{host}-{number}" for number in range(150)], f"h{host}:1")
    gone: list[str] = []
    groups.is_idle, groups.went = lambda name: True, gone.extend
    for number in range(20):
        groups.get(f"x{number}", f"stranger:{number}")
    assert len(gone) == 6 and groups.lacks_room("x", "stranger:1")
    assert groups.get_all(["x", "y", "z"], "other:1") and len(gone) == 8
    assert groups.get("late", "third:1") is None
    clock.ms += 60_000
    assert groups.get("late", "third:1") is not None and len(gone) == 9


def test_a_look_for_idle_groups_goes_on_where_the_last_one_ended() -> None:
    groups = Groups(SteppingClock(), lambda: None, most=len(SYSTEM_GROUPS) + 1000)
    for host in range(9):
        groups.get_all([f"g{host}-{number}" for number in range(groups.room(f"h{host}:1"))], f"h{host}:1")
    looked: list[str] = []

    def is_idle(name: str) -> bool:
        looked.append(name)
        return name == "g0-500"

    groups.is_idle = is_idle
    asked = 1
    while groups.get("new", "other:1") is None:
        asked += 1
    assert asked == 5 and len(looked) == 501


def test_places_are_counted_at_the_start_and_not_for_groups_that_are_known() -> None:
    """50,000 entries are some 70 ms, and a slave has another table at each copy."""
    counted: list[str] = []

    class Counting(Groups):
        def places(self, config: GroupConfig) -> int:
            counted.append(config.name)
            return super().places(config)

    known = {f"g{number}": GroupConfig(f"g{number}") for number in range(100)}
    groups = Counting(SteppingClock(), lambda: None, GroupTable(DataVersion(0, 1, 1), known))
    counted.clear()
    assert groups.get("new", PEER) and set(counted) == {"new"}
    slave = Counting(SteppingClock(), lambda: None, standing=Standing(Role.SLAVE))
    slave.replace(GroupTable(DataVersion(0, 1, 2), known))
    counted.clear()
    assert len(slave.get_all(known, PEER)) == 100 and not counted
