"""Users with rights to something, who try to be given more: what the gate sees is what handlers do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import Raw

from support.brokers import benched, pull_command, send_command
from support.secured import Signing, secured
from support.waiting import until
from tallystick.errors import CorruptRecord
from tallystick.rocketmq.broker.access.rules import Action, read_policies, topic_need
from tallystick.rocketmq.broker.access.table import AccessTable, User
from tallystick.rocketmq.ha.entry import is_among, read_addresses
from tallystick.rocketmq.remoting.dispatch import Dispatch, Handler, MakeReply, Reply
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.access import EntryInfo, PolicyInfo
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.signature import sign
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, PullFlag, RequestCode, ResponseCode, Subscription

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
        for offset, topic, code in ((hers, "T", 0), (hers, "hers%T", 0), (theirs, "T", 1), (hers, "", 1)):
            given = await ann.code(
                RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "offset": str(offset), "originTopic": topic}
            )
            assert given.code == code, (offset, topic)
        another = {"offset": str(hers), "originMsgId": "another"}
        assert (await ann.code(RequestCode.CONSUMER_SEND_MSG_BACK, fields | another)).code == 1


@pytest.mark.rule("N4")
@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (RequestCode.AUTH_UPDATE_USER, {"username": "root"}, b'{"userType":"Normal"}'),
        (RequestCode.AUTH_UPDATE_USER, {"username": "root"}, b'{"userStatus":"disable"}'),
        (RequestCode.AUTH_UPDATE_USER, {"username": "mallory"}, b'{"userType":"Super"}'),
        (RequestCode.AUTH_DELETE_USER, {"username": "root"}, b""),
        (RequestCode.AUTH_DELETE_ACL, {"subject": "User:root"}, b""),
        (
            RequestCode.AUTH_UPDATE_ACL,
            {"subject": "User:root"},
            b'{"policies":[{"entries":[{"resource":"*","actions":["All"],"decision":"Deny"}]}]}',
        ),
    ],
)
async def test_n4_who_may_change_users_changes_no_super_user_and_becomes_none(
    tmp_path: Path, code: int, fields: dict[str, str], body: bytes
) -> None:
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        mallory = Signing(root.peer, await root.make_user("mallory", "mallory-secret"))
        await root.allow("mallory", "Cluster:c0", "Get", "Update")
        await root.allow("root", "Topic:T", "Pub")
        users = dict(broker._access.file.table.users)
        assert (await mallory.code(code, fields, body)).code == NO_PERMISSION
        assert dict(broker._access.file.table.users) == users


def test_what_an_address_may_do_is_not_what_another_one_may() -> None:
    """Decisions are remembered."""
    table = AccessTable()
    entry = EntryInfo("Topic:T", ("Pub",), ("10.0.0.1",), "Allow")
    ann = User("ann", ("secret",), policies=read_policies((PolicyInfo("Custom", (entry,)),)))
    table.put(ann)
    for host, allowed in (("10.0.0.1", True), ("10.0.0.2", False), ("10.0.0.1", True)):
        assert table.allows(ann, topic_need("T", Action.PUB), host) is allowed


@pytest.mark.rule("N2")
@pytest.mark.parametrize("content", ["", '{"users":{'])
async def test_n2_a_damaged_file_brings_back_no_user_who_was_taken_out(tmp_path: Path, content: str) -> None:
    """Beside it lies the content before the last change, which stands in for one that a crash left without a name."""
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        await root.make_user("mallory", "mallory-secret")
        assert (await root.code(RequestCode.AUTH_DELETE_USER, {"username": "mallory"})).code == 0
        await broker.stop()
        path = tmp_path / "b0" / "config" / "tallyAccess.json"
        whole, before = path.read_text(), path.with_name(path.name + ".bak")
        assert "mallory" not in whole and "mallory" in before.read_text()
        path.write_text(content)
        with pytest.raises(CorruptRecord, match="taken back since"):
            await secured(bench)
        path.write_text(whole)
        again, _ = await secured(bench)
        assert "mallory" not in again._access.file.table.users
        await again.stop()
        path.unlink()  # as a crash amid a save leaves them, before anybody was told of a change
        after_crash, _ = await secured(bench)
        assert "root" in after_crash._access.file.table.users


@pytest.mark.rule("N4")
async def test_n4_no_request_is_handled_for_who_has_no_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each code that a broker has a handler for, and one that nobody has, with all that any of them may name."""
    handled, codes, add = list[int](), list[int](), Dispatch.add

    def noting(self: Dispatch, handlers: Mapping[int, Handler], reply: MakeReply = Reply) -> None:
        codes.extend(handlers)
        add(self, {code: lambda link, command, _: handled.append(command.code) for code in handlers}, reply)

    names = ("topic", "b", "group", "consumerGroup", "producerGroup", "groupName", "originTopic", "subject", "username")
    fields = dict.fromkeys(names, "x") | {"table": "topics", "offset": "0"}
    body = (
        b'{"groupName":"x","topicConfigList":[{"topicName":"x"}],"groupConfigList":[{"groupName":"x"}],"clientID":"c",'
        b'"clientId":"c","consumerGroup":"x","mqSet":[{"topic":"x","brokerName":"b0","queueId":0}],'
        b'"consumerDataSet":[{"groupName":"x","subscriptionDataSet":[{"topic":"x"}]}]}'
    )
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        mallory = await root.make_user("mallory", "mallory-secret")
        await broker.stop()
        monkeypatch.setattr(Dispatch, "add", noting)
        broker, root = await secured(bench)
        peer = Signing(root.peer, mallory)
        assert len(codes) > 50
        for code in (*codes, 29_999):
            refused = await peer.code(code, fields, body)
            assert (refused.code, "has no permission" in (refused.remark or "")) == (NO_PERMISSION, True), code
        assert not handled


@pytest.mark.rule("N4")
@pytest.mark.parametrize("how", ["deleted", "changed"])
async def test_n4_a_pull_that_waits_is_over_when_its_user_may_pull_no_more(tmp_path: Path, how: str) -> None:
    """It may wait ten minutes, and would be given what is sent meanwhile."""
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        mallory = await _mallory(root)
        assert (await root.ask(send_command("mine", body=b"before"))).code == 0
        pull = pull_command("mine", offset=1, suspend_ms=600_000, flags=PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
        sign(pull, mallory.credentials)
        peer = await bench.peer(broker)
        opaque = peer.send(pull)
        await until(lambda: asyncio.sleep(0, broker._pulls.held_count == 1), seconds=10)
        await root.make_user("bob", "bob-secret")
        assert broker._pulls.held_count == 1  # nobody may do less now
        if how == "deleted":
            assert (await root.code(RequestCode.AUTH_DELETE_USER, {"username": "mallory"})).code == 0
        else:
            assert (await root.code(RequestCode.AUTH_DELETE_ACL, {"subject": "User:mallory"})).code == 0
        assert (await peer.answer(opaque)).code == ResponseCode.PULL_NOT_FOUND
        again = Signing(peer, mallory.credentials)
        assert (await again.ask(pull_command("mine", offset=0))).code == NO_PERMISSION


@pytest.mark.parametrize(
    ("host", "among"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("::1", True),
        ("10.2.0.1", False),
        ("::a01:203", False),
        ("x", False),
    ],
)
def test_an_address_is_the_same_where_a_port_is_of_both_kinds(host: str, among: bool) -> None:
    assert is_among(host, read_addresses("haAllowedAddresses", "10.1.0.0/16;::1")) is among
