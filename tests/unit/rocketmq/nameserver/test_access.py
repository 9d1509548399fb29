"""A name server that asks for keys: who may look, who may register, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from msgspec import Raw

from support.brokers import Peer, benched
from support.certificates import secret_file
from support.secured import ACCESS, ROOT, Signing
from support.waiting import until
from tallystick.errors import BrokerError, TallyError, UsageError
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.nameserver import access
from tallystick.rocketmq.nameserver.access import parse_users
from tallystick.rocketmq.nameserver.keys import SCHEMA
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting import replays
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.signature import Credentials, sign
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine

ANN, NO_PERMISSION = Credentials("ann", "ann-secret-1"), 16
USERS = f"[clients]\nann = '{ANN.secret_key}'\n[brokers]\nroot = ['newer', '{ROOT.secret_key}']\n"


@asynccontextmanager
async def serving(folder: Path, told: list[Event], *, anonymous: bool = False) -> AsyncIterator[tuple[str, Peer]]:
    """A name server with these users, and a connection to it."""
    settings = NameServerSettings(port=0, users_file=secret_file(folder / "users.toml", USERS), anonymous=anonymous)
    names = NameServer(settings, this_machine(Events(told.append)))
    host, port = await names.start()
    peer = Peer(*await asyncio.open_connection(host, port))
    try:
        yield f"{host}:{port}", peer
    finally:
        peer.writer.close()
        await names.close()


@pytest.mark.rule("N3", "N4")
async def test_n4_who_may_look_does_not_register_and_a_stranger_learns_nothing(tmp_path: Path) -> None:
    told: list[Event] = []
    put = {"namespace": "n", "key": "k", "value": "v"}
    async with serving(tmp_path, told) as (_, peer):
        for asking in (peer, Signing(peer, Credentials("ann", "wrong")), Signing(peer, Credentials("eve", "x"))):
            for code in (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.REGISTER_BROKER, 29_999):
                assert (await asking.code(code, {"topic": "T"})).code == NO_PERMISSION
        ann, root = Signing(peer, ANN), Signing(peer)
        assert (await ann.code(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
        for code in set(RequestCode) - access._OF_CLIENTS:
            assert (await ann.code(code, dict(put))).code == NO_PERMISSION
        assert (await root.code(RequestCode.PUT_KV_CONFIG, dict(put))).code == 0
        assert (await ann.code(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"})).code == 0
    assert "secret" not in str(told)


async def test_brokers_and_clients_with_keys_work_and_others_find_nobody(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench, serving(tmp_path, bench.told) as (address, _):
        await bench.broker(bench.settings(access=ACCESS, name_servers=(address,)))
        security = BrokerSecurity(access_key=ROOT.access_key, secret_key=ROOT.secret_key)
        async with topics(address, settings=BrokerClientSettings(security=security, topic_wait_s=10.0)) as mq:
            assert (await mq.producer("P").send("T", b"signed")).queue_offset == 0
        async with topics(address, settings=BrokerClientSettings(topic_wait_s=0.0)) as stranger:
            with pytest.raises(TallyError):
                await stranger.producer("P").send("T", b"unsigned")


@pytest.mark.rule("N2", "N10")
async def test_n2_a_changed_file_counts_and_a_damaged_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    async with serving(tmp_path, told) as (_, peer):
        ann = Signing(peer, ANN)

        async def may() -> bool:
            return (await ann.code(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0

        async def may_not() -> bool:
            return not await may()

        secret_file(tmp_path / "users.toml", "[clients]\nann = 'ann-secret-1\n")

        async def is_told() -> bool:
            assert await may()
            return any(event.kind == "access file refused" for event in told)

        await until(is_told, seconds=10, pause=0.05)
        secret_file(tmp_path / "users.toml", "[clients]\nann = 'another'\n")
        await until(may_not, seconds=10, pause=0.05)
    assert "ann-secret" not in str(told)
    for damaged in (
        "users = 1",
        "[users]\na='b'",
        "[clients]\na=''",
        "[clients]\na='x'\n[brokers]\na='y'",
        "[clients]\na=[]",
    ):
        with pytest.raises(UsageError):
            parse_users(damaged, "/p")
    with pytest.raises(UsageError):
        NameServer(NameServerSettings(port=0, users_file="/nowhere"), this_machine())


async def test_while_it_is_switched_on_unsigned_requests_pass_and_are_told_once(tmp_path: Path) -> None:
    told: list[Event] = []
    async with serving(tmp_path, told, anonymous=True) as (_, peer):
        for _ in range(3):
            assert (await peer.code(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
        assert (await Signing(peer, Credentials("ann", "wrong")).code(105, {"topic": "T"})).code == NO_PERMISSION
        assert (await peer.code(105, {"topic": "T", "AccessKey": ""})).code == NO_PERMISSION  # who signs signs
    assert [event.kind for event in told].count("request not signed") == 1


@pytest.mark.rule("N1")
def test_n1_with_users_a_name_server_listens_beyond_this_machine() -> None:
    given = SCHEMA.read({"bindAddress": "10.0.0.1", "usersFile": "/etc/users.toml"}).settings
    assert given.users_file == "/etc/users.toml" and not given.anonymous


@pytest.mark.rule("N12", "N13")
async def test_n12_a_user_with_very_many_connections_keeps_no_other_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "MOST_CONNECTIONS", 4)
    async with serving(tmp_path, []) as (_, peer):
        now_ms = this_machine().clock.wall_ms()

        async def ask(credentials: Credentials, connection: int, sent_ms: int) -> int:
            asked = request(RequestCode.GET_BROKER_CLUSTER_INFO, {})
            sign(asked, credentials, replays.Numbered(connection).next(asked.code, sent_ms))
            return (await peer.ask(asked)).code

        for connection in range(8):
            assert await ask(ANN, connection, now_ms + 60_000 + connection) == 0
        assert await ask(ROOT, 99, now_ms) == 0


@pytest.mark.rule("N4")
async def test_n4_a_field_that_comes_twice_is_the_same_to_the_gate_and_to_the_handler(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "users.toml", USERS)
    gate = access.NameGate(path, this_machine(), lets_unsigned_pass=False)
    for text, is_read_again in ((b'{"topic":"T"}', True), (b'{"topic":"T","topic":null}', False)):
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=Raw(text))
        with pytest.raises(BrokerError):
            gate(cast(Link, None), command)
        assert isinstance(command.ext, Raw) is is_read_again
