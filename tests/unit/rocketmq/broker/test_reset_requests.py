"""Groups set elsewhere by an operator: at rest, and while they consume."""

from __future__ import annotations

from pathlib import Path

from support.admin_desk import SLAVE, Desk
from support.brokers import Peer, benched, pull_command, send_command
from tallystick.rocketmq.broker import reset_requests
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.record import decode_messages
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ConsumerGroup, GroupConfig, Heartbeat, PullFlag, RequestCode, TopicConfig

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


def desk(queues: int = 2) -> Desk:
    """Five messages in queue 0, a minute apart, and a group that consumed three of them."""
    found = Desk()
    found.tables.topics.put(TopicConfig("T", queues, queues))
    found.tables.groups.put(GroupConfig("G"))
    for number in range(5):
        found.shelf.send(b"%d" % number, topic="T")
        found.clock.ms += 60_000
    found.shelf.settle()
    found.tables.offsets.commit("T", "G", 0, 3)
    return found


def fields(**more: object) -> dict[str, object]:
    return {"topic": "T", "group": "G", "timestamp": -1, "isForce": "true"} | more


def offsets(found: Desk, **more: object) -> dict[int, int]:
    table = found.read(RESET, fields(**more))["offsetTable"]
    return {dict(key)["queueId"]: offset for key, offset in table.items()}


def test_what_has_piled_up_is_skipped() -> None:
    found = desk()
    assert offsets(found) == {0: 5, 1: 0}
    assert found.tables.offsets.get("T", "G", 0) == 5
    assert found.said("offsets reset")[0]["queues"] == 2


def test_to_a_time_and_to_an_offset_of_one_queue() -> None:
    found = desk()
    second_ms = found.clock.ms - 4 * 60_000
    assert offsets(found, timestamp=second_ms) == {0: 1, 1: 0}
    assert offsets(found, queueId=0, offset=4) == {0: 4}
    assert found.tables.offsets.get("T", "G", 0) == 4
    for offset in (6, -7):
        assert "not in consume queue range [0-5]" in (found.ask(RESET, fields(queueId=0, offset=offset)).remark or "")
    assert offsets(found, queueId=0, offset=-1) == {0: 5}, "none was given"


def test_what_cannot_be_reset() -> None:
    found = desk()
    assert [found.ask(RESET, fields(**wrong)).code for wrong in ({"topic": "X"}, {"group": "X"}, {"queueId": 9})] == [
        17,
        26,
        1,
    ]
    assert Desk(SLAVE).ask(RESET, fields()).remark == "Can not reset offset in slave broker"


def test_a_very_wide_topic_is_set_queue_by_queue() -> None:
    """All 65,536 queues at once were a turn of the loop of 300 ms."""
    found = desk(queues=reset_requests.MAX_QUEUES + 1)
    refused = found.ask(RESET, fields())
    assert (refused.code, "More than 4096 queues are not set at once" in (refused.remark or "")) == (1, True)
    assert found.tables.offsets.get("T", "G", 0) == 3
    assert offsets(found, queueId=0, offset=4) == {0: 4}
    assert len(offsets(desk(queues=reset_requests.MAX_QUEUES))) == reset_requests.MAX_QUEUES


def test_a_time_is_looked_for_in_fewer_queues() -> None:
    found = desk(queues=reset_requests.MAX_SEARCHED + 1)
    assert found.ask(RESET, fields(timestamp=0)).code == 1 and found.tables.offsets.get("T", "G", 0) == 3
    assert len(offsets(found)) == reset_requests.MAX_SEARCHED + 1
    assert len(offsets(desk(queues=reset_requests.MAX_SEARCHED), timestamp=0)) == reset_requests.MAX_SEARCHED


async def test_a_consumer_is_told_at_its_next_pull_and_does_not_commit_over_it(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer: Peer = await bench.peer(broker)
        for number in range(5):
            await peer.ask(send_command(body=b"%d" % number))
        await peer.ask(pull_command(offset=0))
        beat = Heartbeat("client", consumers=(ConsumerGroup("G"),))
        assert (await peer.code(RequestCode.HEART_BEAT, {}, dialect.write(beat))).code == 0
        asked = {name: str(value) for name, value in fields(topic="T", timestamp=0).items()}
        answer = await peer.code(RESET, asked)
        moved_to = dialect.read(bytes(answer.body))["offsetTable"]
        assert moved_to[("brokerName", "b0"), ("queueId", 0), ("topic", "T")] == 0
        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        stranger: Peer = await bench.peer(broker)
        tool = await stranger.ask(pull_command(offset=4))  # in the group's name, as Spark and slaves do
        assert len(list(decode_messages(tool.body))) == 1
        moved = await peer.ask(pull_command(offset=5, flags=flags, commit_offset=5))
        assert (moved.code, moved.remark, moved.fields["nextBeginOffset"]) == (21, "OFFSET_RESET", "0")
        assert moved.fields["tallyReset"] == "true" and "tallyReset" not in tool.fields
        assert broker.parts.offsets.get("T", "G", 0) == 0
        again = await peer.ask(pull_command(offset=0, flags=flags, commit_offset=0))
        assert len(list(decode_messages(again.body))) == 5


def test_a_commit_of_before_a_reset_counts_no_more_until_the_consumer_has_heard() -> None:
    """Else its next commit undid what the operator ordered; the original refuses it in the same words."""
    found = desk()
    offsets(found, queueId=0, offset=1)

    def commit(offset: int) -> Command:
        named = {"topic": "T", "consumerGroup": "G", "queueId": "0", "commitOffset": str(offset)}
        return found.ask(RequestCode.UPDATE_CONSUMER_OFFSET, named)

    refused = commit(5)
    assert (refused.code, refused.remark) == (0, "Offset has been previously reset")
    assert refused.fields == {"tallyResetTo": "1"}
    assert found.tables.offsets.get("T", "G", 0) == 1
    heard = commit(1)  # who commits this goes on there
    assert (heard.remark, "tallyResetTo" in heard.fields) == (None, False)
    assert commit(4).fields == heard.fields
    assert found.tables.offsets.get("T", "G", 0) == 4
