"""Messages that consumers give back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.brokers import TOPIC, Bench, Peer, benched, pull_command, send_command
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.sendback import whole_topic
from tallystick.rocketmq.ha.acks import Settled
from tallystick.rocketmq.wire.headers import SendBackHeader
from tallystick.rocketmq.wire.message_ids import decode_message_id
from tallystick.rocketmq.wire.record import StoredMessage, decode_messages
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import GroupConfig, Perm, RequestCode, ResponseCode, TopicConfig


async def give_back(peer: Peer, offset: int, group: str = "G", **header: Any) -> Command:
    fields = SendBackHeader(**{"offset": offset, "group": group, "delay_level": 0, **header}).to_fields()
    return await peer.code(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


async def sent(bench: Bench, **send: Any) -> tuple[Peer, int]:
    """A broker with one message; its physical offset."""
    broker = await bench.broker()
    broker.parts.groups.put(GroupConfig("G", retry_max_times=2))
    peer = await bench.peer(broker)
    answer = await peer.ask(send_command(**send))
    assert answer.code == 0
    return peer, decode_message_id(answer.fields["msgId"])[2]


async def pulled(peer: Peer, topic: str, offset: int = 0) -> list[StoredMessage]:
    return decode_messages((await peer.ask(pull_command(topic, offset=offset))).body)


async def test_it_comes_again_in_the_retry_topic_of_the_group(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer, offset = await sent(
            bench, body=b"again", properties="TAGS\x01a\x02UNIQ_KEY\x01u\x02WAIT\x01true\x02", flag=4
        )
        answer = await give_back(peer, offset, delay_level=3)
        assert (answer.code, answer.remark, answer.fields) == (0, None, {})
        (message,) = await pulled(peer, "%RETRY%G")
        assert (message.stored_body, message.tags, message.unique_key, message.flag) == (b"again", "a", "u", 4)
        assert (message.reconsume_times, message.properties["RETRY_TOPIC"]) == (1, TOPIC)
        assert message.properties["ORIGIN_MESSAGE_ID"] == (await pulled(peer, TOPIC))[0].offset_id
        assert message.properties["WAIT"] == "false"


@pytest.mark.rule("H10")
async def test_h10_its_answer_waits_for_slaves_as_that_of_a_send(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(role=Role.SYNC_MASTER))
        broker.parts.groups.put(GroupConfig("G"))
        peer = await bench.peer(broker)
        stored = await peer.ask(send_command())
        answer = await give_back(peer, decode_message_id(stored.fields["msgId"])[2])
        assert (answer.code, answer.remark) == (0, "SLAVE_NOT_AVAILABLE")
        assert len(await pulled(peer, "%RETRY%G")) == 1


@pytest.mark.rule("H10")
async def test_h10_who_names_the_copy_has_it_waited_for_and_not_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(role=Role.SYNC_MASTER))
        broker.parts.groups.put(GroupConfig("G"), GroupConfig("H"))
        peer = await bench.peer(broker)
        first, other = [decode_message_id((await peer.ask(send_command())).fields["msgId"])[2] for _ in range(2)]
        copy = int((await give_back(peer, first)).fields["tallyCopy"])
        end, waited, wait = broker.log.store.end, list[int](), broker.log.wait
        await peer.ask(send_command())

        def counted(first_end: int, end: int) -> Settled:
            waited.append(end)
            return wait(first_end, end)

        monkeypatch.setattr(broker.log, "wait", counted)
        for _ in range(2):
            answer = await give_back(peer, first, copy=copy)
            assert (answer.remark, answer.fields["tallyCopy"]) == ("SLAVE_NOT_AVAILABLE", str(copy))
        assert waited == [end, end], "not for what is sent meanwhile"
        assert len(await pulled(peer, "%RETRY%G")) == 1
        for at, group, named in ((other, "G", copy), (first, "H", copy), (first, "G", other), (first, "G", 10**9)):
            assert int((await give_back(peer, at, group, copy=named)).fields["tallyCopy"]) > copy
        assert (len(await pulled(peer, "%RETRY%G")), len(await pulled(peer, "%RETRY%H"))) == (4, 1)


async def test_what_failed_too_often_or_is_given_up_is_put_aside(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer, offset = await sent(bench)
        for times in range(3):
            assert (await give_back(peer, offset)).code == 0
            if times < 2:
                message = (await pulled(peer, "%RETRY%G", times))[0]
                assert message.reconsume_times == times + 1
                offset = message.physical_offset
        assert [message.reconsume_times for message in await pulled(peer, "%DLQ%G")] == [3]
        first = (await pulled(peer, TOPIC))[0]
        assert (await give_back(peer, first.physical_offset, delay_level=-1)).code == 0
        dead = await pulled(peer, "%DLQ%G")
        assert [message.properties["RETRY_TOPIC"] for message in dead] == [TOPIC, TOPIC]


async def test_another_message_than_the_consumer_has_is_not_given_back(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer, offset = await sent(bench, topic="space%T", properties="UNIQ_KEY\x01u\x02")
        place = (await pulled(peer, "space%T"))[0].offset_id
        for named in ({"origin_msg_id": "v"}, {"origin_topic": "U"}, {"origin_msg_id": place, "origin_topic": "U"}):
            answer = await give_back(peer, offset, **named)
            assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
        assert await pulled(peer, "%RETRY%G") == []
        for named in ({"origin_msg_id": "u"}, {"origin_msg_id": place, "origin_topic": "T"}):
            assert (await give_back(peer, offset, **named)).code == 0
        again = (await pulled(peer, "%RETRY%G"))[0]
        for topic in ("%RETRY%G", "space%T", "T"):
            assert (await give_back(peer, again.physical_offset, origin_msg_id="u", origin_topic=topic)).code == 0


async def test_what_cannot_be_given_back(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer, offset = await sent(bench)
        groups, topics = bench.brokers[0].parts.groups, bench.brokers[0].parts.topics
        for nowhere in (offset + 1, 10**9, -1):
            answer = await give_back(peer, nowhere)
            assert (answer.code, answer.remark) == (1, f"look message by offset failed, {nowhere}")
        assert (await give_back(peer, offset, "../x")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        groups.put(GroupConfig("Never", retry_queues=0))
        assert (await give_back(peer, offset, "Never")).code == 0
        assert topics.get("%RETRY%Never") is None
        topics.put(TopicConfig("%RETRY%Shut", 1, 1, Perm.READ))
        assert (await give_back(peer, offset, "Shut")).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("group", "topic", "whole"),
    [
        ("G", "T", "T"),
        ("G", "other%T", "other%T"),
        ("ns%G", "T", "ns%T"),
        ("ns%G", "ns%T", "ns%T"),
        ("ns%G", "other%T", "ns%other%T"),
        ("ns%G", "%RETRY%ns%G", "%RETRY%ns%G"),
        ("%RETRY%ns%G", "T", "ns%T"),
        ("%RETRY%G", "T", "T"),
        ("%G", "T", "T"),
    ],
)
def test_a_topic_is_in_the_namespace_of_the_group_that_names_it(group: str, topic: str, whole: str) -> None:
    assert whole_topic(group, topic) == whole
