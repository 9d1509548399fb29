"""Statistics of very many queues: made in small pieces, refused as soon as no frame has room for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.admin_desk import Desk
from tallystick.rocketmq.broker import responses
from tallystick.rocketmq.broker.statistics import broker_pieces, group_pieces, topic_pieces
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import GroupConfig, RequestCode, TopicConfig


@pytest.fixture
def desk() -> Desk:
    """Two groups that consume three topics of a thousand queues, and a topic that nobody has any more."""
    desk = Desk()
    for topic in ("A", "B", "C"):
        desk.tables.topics.put(TopicConfig(topic, 1000, 1000))
    for group in ("g", "h"):
        desk.tables.groups.put(GroupConfig(group))
        for topic in ("A", "B", "C", "Gone"):
            desk.tables.offsets.commit(topic, group, 0, 1)
    return desk


def sources(desk: Desk) -> list[Iterator[bytes]]:
    config = desk.tables.topics.get("A")
    assert config is not None
    return [
        topic_pieces(desk.parts, config),
        group_pieces(desk.parts, "g", ["A", "B", "C"]),
        broker_pieces(desk.parts, only_ordered=False),
    ]


def test_a_piece_is_about_one_queue_and_all_are_one_text(desk: Desk) -> None:
    for source, queues in zip(sources(desk), (1000, 3000, 6000), strict=True):
        pieces = list(source)
        assert max(map(len, pieces)) < 250
        assert sum(b"queueId" in piece for piece in pieces) == queues
        dialect.read(b"".join(pieces))


def test_no_piece_is_made_after_the_one_that_no_frame_has_room_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_BODY_BYTES", 1000)
    looked: list[int] = []
    queue_range = desk.parts.store.queue_range

    def counted(topic: str, queue_id: int) -> tuple[int, int]:
        looked.append(queue_id)
        return queue_range(topic, queue_id)

    monkeypatch.setattr(desk.parts.store, "queue_range", counted)
    for code, fields in (
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "A"}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    ):
        looked.clear()
        answer = desk.ask(code, fields)
        assert (answer.code, "1000 bytes of a frame" in (answer.remark or ""), bytes(answer.body)) == (1, True, b"")
        assert len(looked) < 20


def test_groups_and_topics_may_come_and_go_meanwhile(desk: Desk) -> None:
    source = broker_pieces(desk.parts, only_ordered=False)
    pieces = [next(source) for _ in range(1500)]
    desk.tables.groups.put(GroupConfig("new"))
    desk.tables.topics.delete("C")
    desk.tables.offsets.forget_topic("C")
    desk.tables.offsets.commit("D", "g", 0, 1)
    found = dialect.read(b"".join([*pieces, *source]))
    groups = [group for each in found["consumeStatsList"] for group in each]
    assert groups == [group for group in desk.tables.groups.all if group != "new"]
