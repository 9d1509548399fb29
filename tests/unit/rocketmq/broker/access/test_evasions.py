"""Users with rights to something, who try to be given more: what the gate sees is what handlers do."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Raw

from support.brokers import benched, send_command
from support.secured import Signing, secured
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.signature import sign
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, RequestCode, Subscription

NO_PERMISSION = 16


async def _mallory(root: Signing) -> Signing:
    """A user with rights to the topic ``mine`` and the group ``G``, which there is."""
    mallory = Signing(root.peer, await root.make_user("mallory", "mallory-secret"))
    await root.allow("mallory", "Topic:mine", "Get", "Sub")
    await root.allow("mallory", "Group:G", "Sub")
    body = b'{"groupName":"G"}'
    assert (await root.code(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
    return mallory


def _with_members(command: Command, members: bytes, signing: Signing) -> Command:
    """Sign a request, and add members behind its own that a reader of names passes over."""
    sign(command, signing.credentials)
    texts = b",".join(b'"%s":"%s"' % (name.encode(), value.encode()) for name, value in command.fields.items())
    return Command(command.code, ext=Raw(b"{" + texts + b"," + members + b"}"))


@pytest.mark.rule("N4")
@pytest.mark.parametrize(
    ("code", "topic", "fields"),
    [
        (RequestCode.VIEW_MESSAGE_BY_ID, "topic", {}),
        (RequestCode.CONSUMER_SEND_MSG_BACK, "originTopic", {"group": "G", "delayLevel": "1"}),
    ],
)
async def test_n4_a_field_that_comes_twice_is_the_same_to_the_gate_and_to_the_handler(
    tmp_path: Path, code: int, topic: str, fields: dict[str, str]
) -> None:
    """To a reader of names a member that is null is none, and to one of typed headers it ends the one before it."""
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        mallory = await _mallory(root)
        assert (await root.ask(send_command("theirs", body=b"theirs"))).code == 0
        offset, end = broker.parts.store.first, broker.parts.store.end
        asked = request(code, {"offset": str(offset), topic: "mine", **fields})
        seen = await mallory.peer.ask(_with_members(asked, b'"%s":null' % topic.encode(), mallory))
        assert seen.code != 0 and b"theirs" not in seen.body
        assert broker.parts.store.end == end


@pytest.mark.rule("N10", "N13")
async def test_n10_a_consumer_that_is_asked_how_it_runs_gets_no_signature_of_who_asks(tmp_path: Path) -> None:
    """A signature covers the values of a request without their names or its code: of one that names the consumer's own
    id it could make others."""
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        mallory, tool = await _mallory(root), Signing(await bench.peer(broker))
        assert (await root.ask(send_command("theirs", body=b"theirs"))).code == 0
        groups = (ConsumerGroup("G", subscriptions=(Subscription("mine"),)),)
        beat = request(RequestCode.HEART_BEAT, {}, dialect.write(Heartbeat("theirs", consumers=groups)))
        assert (await mallory.ask(beat)).code == 0
        asked = request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G", "clientId": "theirs", "jstackEnable": "false"}
        )
        sign(asked, tool.credentials)
        tool.peer.send(asked)
        consumer = mallory.peer
        while not (heard := [one for one in consumer.pushed if one.code == RequestCode.GET_CONSUMER_RUNNING_INFO]):
            await consumer._read()
        assert heard[0].fields == {"consumerGroup": "G", "clientId": "theirs", "jstackEnable": "false"}
        made = {
            "AccessKey": "root",
            "topic": "theirs",
            "z": "Gfalse",
            "Signature": heard[0].fields.get("Signature", ""),
        }
        assert (await consumer.code(RequestCode.DELETE_TOPIC_IN_BROKER, made)).code == NO_PERMISSION
        assert "theirs" in broker.tables.topics.all


@pytest.mark.rule("N4")
async def test_n4_a_right_to_a_topic_gives_back_no_message_of_that_name_in_a_namespace(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        mallory = await _mallory(root)
        assert (await root.ask(send_command("other%mine", body=b"theirs"))).code == 0
        offset, end = broker.parts.store.first, broker.parts.store.end
        fields = {"offset": str(offset), "group": "G", "delayLevel": "1", "originTopic": "mine"}
        assert (await mallory.code(RequestCode.CONSUMER_SEND_MSG_BACK, fields)).code != 0
        assert broker.parts.store.end == end


async def test_a_consumer_in_a_namespace_gives_back_by_its_rights_there(tmp_path: Path) -> None:
    """Its client leaves the namespace out of the topic that it names."""
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        ann = Signing(root.peer, await root.make_user("ann", "ann-secret"))
        await root.allow("ann", "Topic:hers%*", "Sub")
        await root.allow("ann", "Group:hers%*", "Sub")
        body = b'{"groupName":"hers%G"}'
        assert (await root.code(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
        assert (await root.ask(send_command("hers%T", body=b"hers"))).code == 0
        hers, theirs = broker.parts.store.first, broker.parts.store.end
        assert (await root.ask(send_command("T", body=b"theirs"))).code == 0
        fields = {"group": "hers%G", "delayLevel": "1", "originTopic": "T"}
        for offset, topic, code in ((hers, "T", 0), (hers, "hers%T", 0), (theirs, "T", 1)):
            given = await ann.code(
                RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "offset": str(offset), "originTopic": topic}
            )
            assert given.code == code, (offset, topic)
