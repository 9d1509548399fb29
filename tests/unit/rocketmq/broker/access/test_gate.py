"""Requests to a real broker that asks for keys, with the original's codes and bodies."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from support.brokers import SMALL, Bench, benched, bodies, pull_command, send_command
from support.certificates import secret_file
from support.saving import GatedDisk
from support.secured import ACCESS, ROOT, Signing, secured
from support.waiting import until
from tallystick.cli.broker import import_
from tallystick.errors import UsageError
from tallystick.rocketmq.broker.access import file, table
from tallystick.rocketmq.broker.access.settings import AccessSettings
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.ha.entry import read_addresses
from tallystick.rocketmq.remoting import replays, security
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.access import AclInfo, UserInfo
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.signature import ONCE, SIGNATURE, Credentials, sign
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.machine import this_machine

NO_PERMISSION = 16


@pytest.mark.rule("N3")
async def test_n3_nothing_is_done_for_a_request_without_a_right_signature(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        peer = root.peer
        end = broker.parts.store.end
        unsigned = await peer.ask(send_command())
        assert unsigned.code == NO_PERMISSION and "T" not in broker.tables.topics.all
        remarks = set()
        for credentials in (Credentials("root", "wrong"), Credentials("nobody", "root-secret-9271")):
            refused = await Signing(peer, credentials).ask(send_command())
            assert refused.code == NO_PERMISSION
            remarks.add(refused.remark)
        assert len(remarks) == 1  # whether there is such a user is not told
        changed = send_command(body=b"body")
        sign(changed, ROOT)
        changed.body = b"Body"
        assert (await peer.ask(changed)).code == NO_PERMISSION
        assert broker.parts.store.end == end and "T" not in broker.tables.topics.all
        unknown = await peer.ask(request(29_999, {}))
        assert unknown.code == NO_PERMISSION  # not even which codes there are
        assert (await root.ask(send_command())).code == 0


@pytest.mark.rule("N13")
async def test_n13_a_request_of_our_client_counts_once_and_as_what_it_is(tmp_path: Path) -> None:
    """The original's signature covers neither time nor code: of one request anybody could make another."""
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        client = RemotingClient(this_machine(), RemotingSettings(), credentials=lambda: ROOT)
        address, sent = ":".join(map(str, broker.address)), send_command(body=b"once")
        assert (await client.ask(address, sent, 5.0)).code == 0
        end, peer = broker.parts.store.end, root.peer
        assert (await peer.ask(copy(sent))).code == NO_PERMISSION
        other = request(RequestCode.GET_BROKER_CONFIG, {})
        await client.ask(address, other, 5.0)
        other = copy(other)
        other.code = RequestCode.CLEAN_UNUSED_TOPIC
        assert (await peer.ask(other)).code == NO_PERMISSION
        cut = copy(sent)
        cut.ext = {name: value for name, value in sent.fields.items() if name != ONCE}
        assert (await peer.ask(cut)).code == NO_PERMISSION  # it is signed
        assert broker.parts.store.end == end
        assert (await client.ask(address, sent, 5.0)).code == 0  # again by its client: another request
        await client.close()


async def test_refused_and_unsigned_requests_are_metrics(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench, http_enabled=True, http_port=0)
        await root.peer.ask(send_command())
        ann = Signing(root.peer, await root.make_user("ann", "ann-secret"))
        await ann.ask(send_command())
        assert broker.http_address is not None
        reader, writer = await asyncio.open_connection(*broker.http_address)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        page = await reader.read()
        writer.close()
        for name, count in (("refused", 2), ("unsigned", 0), ("old_secrets", 0)):
            assert f"broker_access_{name}_total {count}.0" in page.decode()


async def test_a_user_may_do_what_his_policies_allow_and_nothing_else(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        ann = Signing(root.peer, await root.make_user("ann", "ann-secret"))
        assert (await ann.ask(send_command())).code == NO_PERMISSION
        assert (await root.allow("ann", "Topic:T", "Pub", "Sub")).code == 0
        assert (await root.allow("ann", "Group:G", "Sub")).code == 0
        assert (await ann.ask(send_command(body=b"hers"))).code == 0
        assert bodies(await ann.ask(pull_command())) == [b"hers"]
        assert (await ann.ask(pull_command(code=RequestCode.LITE_PULL_MESSAGE, group="other"))).code == NO_PERMISSION
        assert (await ann.ask(pull_command(topic="%RETRY%other"))).code == NO_PERMISSION
        assert (await ann.ask(send_command("%RETRY%other"))).code == NO_PERMISSION
        assert (await ann.ask(send_command("U"))).code == NO_PERMISSION
        for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.AUTH_LIST_USER):
            assert (await ann.code(code, {})).code == NO_PERMISSION
        beat = b'{"clientID":"c","consumerDataSet":[{"groupName":"other","subscriptionDataSet":[{"topic":"T"}]}]}'
        assert (await ann.code(RequestCode.HEART_BEAT, {}, beat)).code == NO_PERMISSION
        assert (await ann.code(RequestCode.HEART_BEAT, {}, beat.replace(b"other", b"G"))).code == 0
        body = b'{"groupName":"made"}'
        assert (await ann.code(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == NO_PERMISSION
        deleted = await root.code(RequestCode.AUTH_DELETE_ACL, {"subject": "User:ann", "resource": "Topic:T"})
        assert deleted.code == 0
        assert (await ann.ask(send_command())).code == NO_PERMISSION
        assert "made" not in broker.tables.groups.all


async def test_users_and_policies_are_listed_as_the_original_lists_them(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        _, root = await secured(bench)
        await root.make_user("ann", "ann-secret")
        assert (await root.allow("ann", "group:G*", "sub")).code == 0
        user = dialect.read_as(bytes((await root.code(RequestCode.AUTH_GET_USER, {"username": "ann"})).body), UserInfo)
        assert user == UserInfo("ann", "ann-secret", "Normal", "enable")
        users = dialect.read_as(bytes((await root.code(RequestCode.AUTH_LIST_USER, {})).body), list[UserInfo])
        assert [user.username for user in users] == ["root", "ann"]
        acl = await root.code(RequestCode.AUTH_GET_ACL, {"subject": "User:ann"})
        assert bytes(acl.body) == (
            b'{"policies":[{"entries":[{"actions":["Sub"],"decision":"Allow","resource":"Group:G*"}],'
            b'"policyType":"Custom"}],"subject":"User:ann"}'
        )
        for fields, count in (({"resourceFilter": "Group"}, 1), ({"resourceFilter": "Topic"}, 0),
                              ({"subjectFilter": "root"}, 0), ({}, 1)):  # fmt: skip
            listed = await root.code(RequestCode.AUTH_LIST_ACL, fields)
            assert len(dialect.read_as(bytes(listed.body), list[AclInfo]) if listed.body else []) == count


@pytest.mark.rule("N10")
async def test_n10_secrets_are_shown_to_super_users_alone_and_to_no_log(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        ann = Signing(root.peer, await root.make_user("ann", "ann-secret"))
        await root.allow("ann", "Cluster:c0", "Get", "Update")
        shown = await ann.code(RequestCode.AUTH_GET_USER, {"username": "root"})
        assert shown.code == 0 and b"secret" not in shown.body and b"root" in shown.body
        page = await ann.code(RequestCode.GET_TABLE_PAGE, {"table": "access"})
        assert page.code == NO_PERMISSION and not page.body
        config = await root.code(RequestCode.GET_BROKER_CONFIG, {})
        assert b"authenticationEnabled=true" in config.body and b"root-secret" not in config.body
        body = dialect.write(UserInfo("root", "mine now"))
        taken = await ann.code(RequestCode.AUTH_UPDATE_USER, {"username": "root"}, body)
        assert taken.code == NO_PERMISSION
        made = dialect.write(UserInfo("eve", "eve-secret", "Super"))
        assert (await ann.code(RequestCode.AUTH_CREATE_USER, {"username": "eve"}, made)).code == NO_PERMISSION
        assert "-secret" not in repr(broker.settings) + repr(broker.tables) + str(bench.told)
        assert "-secret" not in repr(list(broker._access.file.table.users.values()))
        file = tmp_path / "b0" / "config" / "tallyAccess.json"
        assert file.stat().st_mode & 0o777 == 0o600


async def test_a_user_who_is_disabled_changed_or_deleted_is_refused_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        ann = Signing(root.peer, await root.make_user("ann", "ann-secret", user_type="Super"))
        assert (await ann.ask(send_command())).code == 0
        for change in (UserInfo(user_status="disable"), UserInfo(password="another", user_status="enable")):
            done = await root.code(RequestCode.AUTH_UPDATE_USER, {"username": "ann"}, dialect.write(change))
            assert done.code == 0
            assert (await ann.ask(send_command())).code == NO_PERMISSION
        await broker.stop()
        again = await bench.broker(bench.settings(access=ACCESS))
        peer = await bench.peer(again)
        assert (await Signing(peer, ann.credentials).ask(send_command())).code == NO_PERMISSION
        assert (await Signing(peer, Credentials("ann", "another")).ask(send_command())).code == 0
        assert (await Signing(peer).code(RequestCode.AUTH_DELETE_USER, {"username": "ann"})).code == 0
        assert (await Signing(peer, Credentials("ann", "another")).ask(send_command())).code == NO_PERMISSION


async def test_a_file_that_was_changed_is_read_again_with_two_secrets_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LOOK_S", 0.02)
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        await root.make_user("ann", "one", user_type="Super")
        path = tmp_path / "b0" / "config" / "tallyAccess.json"
        text = path.read_text()
        path.write_text(text.replace('["one"]', '["two","one"]'))
        peer = root.peer

        async def signs(secret: str) -> bool:
            return (await Signing(peer, Credentials("ann", secret)).ask(send_command())).code == 0

        await until(lambda: signs("two"), seconds=10)
        assert await signs("one")
        path.write_text(text.replace('["one"]', '["two"'))  # no JSON: the users stay as they were, and it is told
        await until(lambda: any(event.kind == "access file refused" for event in bench.told), seconds=10)
        assert await signs("one") and await signs("two")
        path.write_text(text.replace('["one"]', '["two"]'))
        await until(lambda: asyncio.sleep(0, not broker._access.file.table.users["ann"].secrets[1:]), seconds=10)
        assert await signs("two") and not await signs("one")


@pytest.mark.rule("N2")
async def test_n2_a_damaged_file_of_users_is_no_start_and_no_rights_without_names(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, _ = await secured(bench)
        await broker.stop()
        path = tmp_path / "b0" / "config" / "tallyAccess.json"
        path.write_text(
            '{"users":{"eve":{"username":"eve","passwords":["x"],"userType":"Root","userStatus":"enable"}}}'
        )
        with pytest.raises(Exception, match=r"userType is Super or Normal"):
            await secured(bench)
        with pytest.raises(UsageError, match="authorizationEnabled=true needs authenticationEnabled=true"):
            AccessSettings(authorizes=True)


async def test_without_authentication_nobody_is_told_of_users(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, _ = await secured(bench)
        await broker.stop()
        peer = await bench.peer(await bench.broker())
        for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_CREATE_USER):
            refused = await peer.code(code, {"username": "eve"}, b'{"password":"x"}')
            assert refused.code == NO_PERMISSION and not refused.body
        assert (await peer.code(RequestCode.GET_TABLE_PAGE, {"table": "access"})).code == 3


async def test_a_slave_refuses_a_key_that_its_master_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with benched(tmp_path) as bench:
        master, root = await secured(bench)
        ann = await root.make_user("ann", "ann-secret", user_type="Super")
        slave = await _slave(bench, "b1", master.settings.cluster)
        assert master.ha_address is not None
        slave.log.follow(":".join(map(str, master.ha_address)))
        slave.sync.master = ":".join(map(str, master.fast_address))
        peer = await bench.peer(slave)
        assert (await Signing(peer, ann).code(RequestCode.GET_BROKER_CONFIG, {})).code in (0, NO_PERMISSION)

        async def served() -> bool:
            return (await Signing(peer, ann).code(RequestCode.GET_BROKER_CONFIG, {})).code == 0

        await until(served, seconds=20)
        refused = await Signing(peer).code(RequestCode.AUTH_DELETE_USER, {"username": "ann"})
        assert refused.code != 0
        assert (await root.code(RequestCode.AUTH_DELETE_USER, {"username": "ann"})).code == 0

        async def is_refused() -> bool:
            slave.sync.followed()
            return not await served()

        await until(is_refused, seconds=20)
        assert not slave.sync.status.failures


@pytest.mark.rule("N14")
async def test_n14_who_asks_again_for_the_deletion_of_a_user_waits_for_the_disk_as_well(tmp_path: Path) -> None:
    """He was there no more, and so the second answer was yes; a loss of power let him in again."""
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(access=ACCESS), disk=disk)
        root = Signing(await bench.peer(broker))
        await root.make_user("ann", "ann-secret")
        disk.full = True
        for _ in range(2):
            refused = await root.code(RequestCode.AUTH_DELETE_USER, {"username": "ann"})
            assert refused.code == 1 and "cannot be saved" in (refused.remark or "")
        disk.full = False
        assert (await root.code(RequestCode.AUTH_DELETE_USER, {"username": "ann"})).code == 0
        assert "ann" not in (tmp_path / "b0" / "config" / "tallyAccess.json").read_text()


async def _slave(bench: Bench, folder: str, cluster: str):  # type: ignore[no-untyped-def]
    settings = bench.settings(folder, broker_id=1, role=Role.SLAVE, access=ACCESS, store=SMALL, cluster=cluster)
    return await bench.broker(settings)


def test_the_secret_of_a_setting_is_not_in_its_refusal() -> None:
    from tallystick.rocketmq.broker.keys import SCHEMA

    needed = {"storePathRootDir": "/s", "brokerName": "b"}
    with pytest.raises(UsageError) as refused:
        SCHEMA.read({**needed, "initAuthenticationUser": '{"username":"a","pasword":"hidden-1"}'})
    assert "hidden" not in str(refused.value)
    given = SCHEMA.read(
        {**needed, "authenticationEnabled": "true", "initAuthenticationUser": '{"username":"a","password":"hidden-1"}'}
    ).settings
    assert given.access.first_user == Credentials("a", "hidden-1")
    assert "hidden" not in SCHEMA.text(given)


def test_a_second_signature_does_not_change_the_first() -> None:
    command = send_command()
    sign(command, ROOT)
    first = command.fields[SIGNATURE]
    sign(command, ROOT)
    assert command.fields[SIGNATURE] == first


async def test_accounts_of_a_plain_acl_become_users_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "plain_acl.yml"
    account = "accounts:\n- accessKey: ann\n  secretKey: ann-secret\n  admin: false\n  topicPerms:\n  - T=PUB\n"
    plain.write_text(account)
    keys = secret_file(tmp_path / "keys", f"accessKey={ROOT.access_key}\nsecretKey={ROOT.secret_key}\n")
    monkeypatch.setenv(security.CREDENTIALS, keys)
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        address = ":".join(map(str, broker.address))
        for _ in range(2):  # the second time it is there, with another secret
            await asyncio.to_thread(import_, str(plain), broker=address)
            ann = Signing(root.peer, Credentials("ann", "ann-secret"))
            assert (await ann.ask(send_command())).code == 0
            assert (await ann.ask(pull_command())).code == NO_PERMISSION
            await root.code(RequestCode.AUTH_UPDATE_USER, {"username": "ann"}, b'{"password":"other"}')
        assert "ann-secret" not in capsys.readouterr().out
        plain.write_text("globalWhiteRemoteAddresses:\n- 10.1.*.*\n" + account)
        with pytest.raises(UsageError, match="--allow-whitelist"):
            import_(str(plain), broker=address)
        await asyncio.to_thread(import_, str(plain), broker=address, allow_whitelist=True)
        assert "allowWhitelist=true and whiteAddresses=10.1.0.0/16" in capsys.readouterr().out


async def test_white_addresses_need_no_key_where_that_is_written_out(tmp_path: Path) -> None:
    white = read_addresses("whiteAddresses", "127.0.0.0/8")
    with pytest.raises(UsageError, match="allowWhitelist=true"):
        AccessSettings(authenticates=True, white_addresses=white)
    async with benched(tmp_path) as bench:
        access = replace(ACCESS, white_addresses=white, has_whitelist=True)
        broker = await bench.broker(bench.settings(access=access))
        peer = await bench.peer(broker)
        assert (await peer.ask(send_command())).code == 0
        assert (await Signing(peer, Credentials("root", "wrong")).ask(send_command())).code == NO_PERMISSION
        for code in (RequestCode.AUTH_LIST_USER, RequestCode.GET_TABLE_PAGE):
            refused = await peer.code(code, {"table": "access"})
            assert refused.code == NO_PERMISSION and not refused.body
        assert [event.kind for event in bench.told].count("request not signed") == 1


@pytest.mark.rule("N14")
async def test_n14_each_change_of_users_is_told_with_who_made_it(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        _, root = await secured(bench)
        await root.make_user("ann", "ann-secret")
        await root.allow("ann", "Topic:T", "Pub")
        await root.code(RequestCode.AUTH_DELETE_USER, {"username": "ann"})
        told = [event.fields for event in bench.told if event.kind == "access changed"]
        assert [one["what"] for one in told] == [
            "user ann created, Normal",
            "policies of user ann set for Topic:T",
            "user ann deleted",
        ]
        assert all(one["by"] == "root" and str(one["peer"]).startswith("127.0.0.1:") for one in told)


@pytest.mark.rule("N12")
async def test_n12_users_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_USERS", 3)
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        await root.make_user("ann", "a")
        await root.make_user("bob", "b")
        body = dialect.write(UserInfo("eve", "e"))
        refused = await root.code(RequestCode.AUTH_CREATE_USER, {"username": "eve"}, body)
        assert refused.code == NO_PERMISSION and "at most 3 users" in (refused.remark or "")
        for name, password in (("x" * 300, "p"), ("eve", "p" * 2000)):
            body = dialect.write(UserInfo(name, password))
            assert (await root.code(RequestCode.AUTH_CREATE_USER, {"username": name}, body)).code == NO_PERMISSION
        assert len(broker._access.file.table.users) == 3


async def test_a_right_to_one_topic_shows_no_message_of_another(tmp_path: Path) -> None:
    """Both requests name any offset of the log, and a topic."""
    async with benched(tmp_path) as bench:
        broker, root = await secured(bench)
        assert (await root.ask(send_command("%RETRY%mine", body=b"theirs"))).code == 0
        offset = str(broker.parts.store.first)
        ann = Signing(root.peer, await root.make_user("ann", "ann-secret"))
        await root.allow("ann", "Topic:mine", "Get", "Sub")
        await root.allow("ann", "Group:G", "Sub")
        body = b'{"groupName":"G"}'
        assert (await root.code(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
        seen = await ann.code(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset, "topic": "mine"})
        assert seen.code != 0 and b"theirs" not in seen.body
        assert (await ann.code(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})).code == NO_PERMISSION
        given = await root.code(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset, "topic": "%RETRY%mine"})
        assert given.code == 0 and b"theirs" in given.body
        fields = {"offset": offset, "group": "G", "delayLevel": "1", "originTopic": "mine"}
        end = broker.parts.store.end
        assert (await ann.code(RequestCode.CONSUMER_SEND_MSG_BACK, fields)).code != 0
        without = {name: value for name, value in fields.items() if name != "originTopic"}
        assert (await ann.code(RequestCode.CONSUMER_SEND_MSG_BACK, without)).code != 0
        assert broker.parts.store.end == end


@pytest.mark.rule("N12", "N13")
async def test_n12_a_user_with_very_many_connections_keeps_no_other_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "MOST_CONNECTIONS", 4)
    async with benched(tmp_path) as bench:
        _, root = await secured(bench)
        mallory, now_ms = await root.make_user("mallory", "mallory-secret"), this_machine().clock.wall_ms()

        async def ask(credentials: Credentials, connection: int, sent_ms: int) -> int:
            asked = request(RequestCode.GET_BROKER_CONFIG, {})
            sign(asked, credentials, replays.Numbered(connection).next(asked.code, sent_ms))
            return (await root.peer.ask(asked)).code

        for connection in range(8):
            assert await ask(mallory, connection, now_ms + 60_000 + connection) == NO_PERMISSION
        assert await ask(ROOT, 99, now_ms) == 0
