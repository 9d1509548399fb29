"""Who is in groups: the pieces together are the text of the whole table."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.rocketmq.broker import member_lists
from tallystick.rocketmq.broker.clients import Consumers, GroupMember
from tallystick.rocketmq.broker.member_lists import (
    WrittenLists,
    all_producer_pieces,
    consumer_pieces,
    id_pieces,
    producer_pieces,
)
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import (
    Connection,
    ConsumerConnections,
    ConsumerIds,
    ProducerInfo,
)
from tallystick.rocketmq.wire.values import Language


class Peer:
    def __init__(self, number: int) -> None:
        self.peer = f"10.0.0.1:{number}"


def members(count: int) -> dict[Any, GroupMember]:
    return {Peer(number): GroupMember(f"c{number}", Language.JAVA, 513, number / 10) for number in range(count)}


def connections(found: dict[Any, GroupMember]) -> list[Connection]:
    return [Connection(one.client_id, link.peer, "JAVA", one.version) for link, one in found.items()]


def test_producers_and_consumers_of_a_group() -> None:
    for count in (0, 1, 5):
        found = members(count)
        assert b"".join(producer_pieces(found)) == dialect.write({"connectionSet": connections(found)})
        group: Consumers[Any] = Consumers("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", found)
        table = ConsumerConnections(
            connections(found), group.consume_from, group.consume_type, group.message_model, dict(group.subscriptions)
        )
        assert b"".join(consumer_pieces(group)) == dialect.write(table)


def test_ids_of_members() -> None:
    for count in (0, 1, 5):
        ids = [f'c{number}"\1é' for number in range(count)]
        pieces = list(id_pieces(ids))
        assert b"".join(pieces) == dialect.write_strict(ConsumerIds(ids)) and len(pieces) == count + 2


def test_all_producers() -> None:
    """8 MB of them were half a second of the loop."""
    groups = {"P": members(3), 'with "quotes"': members(1), "Q": members(50)}
    table = {
        group: [
            ProducerInfo(one.client_id, link.peer, "JAVA", 513, 1000 + int(one.heard_at * 1000))
            for link, one in found.items()
        ]
        for group, found in groups.items()
    }
    pieces = list(all_producer_pieces(groups, 1000))
    assert b"".join(pieces) == dialect.write({"data": table})
    assert max(map(len, pieces)) < 200, "a piece is about one member"
    assert b"".join(all_producer_pieces({}, 0)) == dialect.write({"data": {}})


def test_a_group_that_goes_meanwhile_is_left_out() -> None:
    groups = {"P": members(2), "Q": members(2)}
    pieces = all_producer_pieces(groups, 0)
    begin = [next(pieces) for _ in range(2)]
    del groups["Q"]
    groups["P"].clear()
    assert [*dialect.read(b"".join([*begin, *pieces]))["data"]] == ["P"]


def test_a_list_is_kept_until_the_members_change() -> None:
    lists = WrittenLists()
    lists.put("G", 1, b"one")
    assert (lists.get("G", 1), lists.get("G", 2), lists.get("H", 1)) == (b"one", None, None)
    size = lists.size
    lists.put("G", 2, b"two")
    assert (lists.get("G", 1), lists.get("G", 2), lists.size) == (None, b"two", size)


def test_all_lists_together_are_bounded_and_those_asked_for_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 groups with the same 220 members of the longest ids were 2.6 GB, and counted for nobody."""
    monkeypatch.setattr(member_lists, "MAX_WRITTEN_BYTES", 10_000)
    lists = WrittenLists()
    for group in "ABC":
        lists.put(group, 1, b"x" * 2500)
    assert lists.get("A", 1) is not None
    lists.put("D", 1, b"x" * 2500)
    assert [group for group in "ABCD" if lists.get(group, 1) is not None] == ["A", "C", "D"]
    lists.put("E", 1, b"x" * 10_001)
    assert lists.size == 0 and lists.get("E", 1) is None
