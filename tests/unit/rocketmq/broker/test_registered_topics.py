"""What of its topics a broker registers, whatever strangers made of them."""

from __future__ import annotations

import asyncio

import pytest

from support.stores import SteppingClock
from tallystick.rocketmq.broker import registered_topics
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.topics import TopicDefaults, Topics
from tallystick.rocketmq.wire.bodies import TopicTable, TopicTableResponse
from tallystick.rocketmq.wire.dialect import MAX_VALUES, check_bounds
from tallystick.rocketmq.wire.registration import Registration, encode_registration, topic_size
from tallystick.rocketmq.wire.remoting import encode, request
from tallystick.rocketmq.wire.values import RETRY_PREFIX, DataVersion, RequestCode, TopicConfig

ATTRIBUTES = {"message.type": "UNSPECIFIED", "queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}


def register(table: TopicTable) -> None:
    """Raises RemoteProtocolError or LocalProtocolError if it fits no frame, or no name server reads it."""
    body = encode_registration(Registration(TopicTableResponse(table.version, table.topics)))
    check_bounds(body, MAX_VALUES)
    encode(request(RequestCode.REGISTER_BROKER, {"brokerName": "b" * 127}, body))


@pytest.mark.parametrize(
    ("chars", "attributes"),
    [(127, {}), (127, {"message.type": "NORMAL"}), (8, ATTRIBUTES), (8, {}), (80, ATTRIBUTES | {"reserve.time": "9"})],
)
async def test_what_one_host_makes_of_topics_and_groups_fits_a_registration(
    chars: int, attributes: dict[str, str]
) -> None:
    """With 37,494 topics of long names it did not, and none of the broker's topics had a route any more."""
    topics = Topics(TopicDefaults("b0", "c0"), SteppingClock(), lambda: None)
    groups = Groups(SteppingClock(), lambda: None)
    topics.put(TopicConfig("Honest"))
    made = [TopicConfig(f"{n:08d}" + "x" * (chars - 8), 65536, 65536, attributes=attributes) for n in range(30_000)]
    each = topics.places(made[0])
    topics.put(*made[: topics.room() // each])
    assert topics.room() < each and (each > 1 or len(topics.all) == 30_000)
    for first in range(0, 10_000, 500):
        names = [f"{number:06d}".ljust(255 if chars > 8 else 6, "g") for number in range(first, first + 500)]
        known = groups.get_all(names, "h:1")
        topics.create_retries({prefix + name: 1 for name in known for prefix in (RETRY_PREFIX, "%DLQ%")})
    table = topics.table()
    register(table)
    assert await registered_topics.fitting(table) is table


async def test_of_a_table_that_is_too_long_those_made_first_are_registered() -> None:
    """And the broker's own, and no topic of a group for one that was asked for."""
    retries = {f"%RETRY%{n:06d}" + "g" * 249: TopicConfig(f"%RETRY%{n:06d}" + "g" * 249) for n in range(4_000)}
    made = [TopicConfig(f"{n:07d}" + "x" * 120) for n in range(40_000)]
    table = TopicTable(
        DataVersion(0, 1, 1), {"TBW102": TopicConfig("TBW102")} | retries | {topic.name: topic for topic in made}
    )
    with pytest.raises(Exception, match="too l"):
        register(table)
    chosen = await registered_topics.fitting(table)
    register(chosen)
    assert 40_000 < len(chosen.topics) < len(table.topics)
    assert [*chosen.topics][:40_001] == ["TBW102", *(topic.name for topic in made)]


async def test_permissions_of_very_many_topics_are_masked_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 topics were a turn of the loop of 84 ms."""
    monkeypatch.setattr(registered_topics, "STEP_TOPICS", 10)
    topics = {f"T{number}": TopicConfig(f"T{number}", perm=6) for number in range(95)}
    turns = []

    def turn() -> None:
        turns.append(0)
        asyncio.get_running_loop().call_soon(turn)

    turn()
    table = TopicTable(DataVersion(0, 1, 1), topics)
    masked = await registered_topics.permitted(table, 4)
    assert len(turns) >= 9 and {topic.perm for topic in masked.topics.values()} == {4}
    assert await registered_topics.permitted(table, 6) is table


async def test_of_many_values_no_more_are_registered_than_a_name_server_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: TopicConfig(name) for name in "abcde"}
    _, values = topic_size(made["a"])
    monkeypatch.setattr(registered_topics, "FRAME_VALUES", 3 * values)
    assert [*(await registered_topics.fitting(TopicTable(DataVersion(0, 1, 1), made))).topics] == ["a", "b", "c"]


async def test_a_topic_that_does_not_fit_keeps_no_shorter_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: TopicConfig(name) for name in ("a", "long" * 30, "b")}
    monkeypatch.setattr(registered_topics, "FRAME_BYTES", 2 * topic_size(made["a"])[0])
    assert [*(await registered_topics.fitting(TopicTable(DataVersion(0, 1, 1), made))).topics] == ["a", "b"]
