from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from support.admin_desk import Caller
from support.announcing import announcement
from support.frames import decode
from support.waiting import until
from support.workers import HeldWorker
from tallystick.codec.steps import Steps, finished
from tallystick.errors import UsageError
from tallystick.rocketmq.nameserver import server as server_module
from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting import slices
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.remoting.slices import Slices
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import TopicNames, TopicTableResponse
from tallystick.rocketmq.wire.name_server_headers import RegisterBrokerHeader
from tallystick.rocketmq.wire.registration import Registration, encode_registration
from tallystick.rocketmq.wire.remoting import encode, request
from tallystick.rocketmq.wire.values import DataVersion, RequestCode, TopicConfig, TopicRoute
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine
from tallystick.runtime.turn_steps import TurnSteps


class Bench:
    address: str

    def __init__(self) -> None:
        self.told: list[Event] = []
        settings = NameServerSettings(port=0, scan_interval_s=0.02)
        self.server = NameServer(settings, this_machine(Events(self.told.append)))
        self.client = self.new_client()

    def new_client(self) -> RemotingClient:
        return RemotingClient(this_machine(), RemotingSettings())

    async def register(
        self, client: RemotingClient, broker_id: int, timeout_ms: int | None = None, more: int = 0
    ) -> dict[str, str]:
        topics = {name: TopicConfig(name, 3, 3) for name in ("N1", "N2", *(f"T{number}" for number in range(more)))}
        header = RegisterBrokerHeader(
            broker_name="n",
            broker_addr=f"n:{broker_id}",
            cluster_name="c",
            broker_id=broker_id,
            ha_server_addr=f"n:{broker_id + 100}",
            heartbeat_timeout_millis=timeout_ms,
        )
        body = encode_registration(Registration(TopicTableResponse(DataVersion(0, 7, 1), topics)))
        command = request(RequestCode.REGISTER_BROKER, header.to_fields(), body)
        return (await client.ask(self.address, command, 5)).fields

    async def addresses(self) -> dict[int, str]:
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "N1"})
        response = await self.client.ask(self.address, command, 5)
        return dialect.read_as(bytes(response.body), TopicRoute).brokers[0].addresses if response.code == 0 else {}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    host, port = await bench.server.start()
    bench.address = f"{host}:{port}"
    yield bench
    await bench.client.close()
    await bench.server.close()


async def test_a_broker_is_routed_to_as_long_as_its_connection_lives(bench: Bench) -> None:
    master, slave = bench.new_client(), bench.new_client()
    await bench.register(master, 0)
    assert await bench.register(slave, 1) == {"haServerAddr": "n:100", "masterAddr": "n:0"}
    assert await bench.addresses() == {0: "n:0", 1: "n:1"}
    await master.close()

    async def master_gone() -> bool:
        return await bench.addresses() == {1: "n:1"}

    await until(master_gone)
    await slave.close()
    assert ("broker unregistered", "its connection ended") in [
        (event.kind, event.fields.get("reason")) for event in bench.told
    ]


async def test_brokers_of_connections_that_end_together_are_unregistered_over_many_turns(bench: Bench) -> None:
    """100 connections of 100 brokers each held others up for 0.4 s."""
    server, links = bench.server, [cast("Link", Caller()) for _ in range(5)]
    server._unregistering = TurnSteps(10)
    for number, link in enumerate(links):
        for one in range(20):
            finished(server.routes.register(announcement(0, name=f"b{number}-{one}"), link, 1e9))
    for link in links:
        server.closed(link)
    assert len(server.routes.sets) == len(links) * 20 - 10
    await until(lambda: not len(server.routes.sets))
    told = [event.fields["broker"] for event in bench.told if event.kind == "broker unregistered"]
    assert told == [f"b{number}-{one}" for number in range(5) for one in range(20)]


async def test_a_silent_broker_is_forgotten(bench: Bench) -> None:
    await bench.register(bench.client, 0, timeout_ms=50)

    async def gone() -> bool:
        return await bench.addresses() == {}

    await until(gone)
    assert bench.told[-1].fields["reason"] == "it was silent for too long"


async def test_a_clean_stop_is_told_once() -> None:
    told: list[Event] = []
    server = NameServer(NameServerSettings(port=0), this_machine(Events(told.append)))
    await server.start()
    await server.close()
    await server.close()
    assert [event.kind for event in told] == ["name server stopped"]


async def test_a_one_way_request_gets_no_answer(bench: Bench) -> None:
    reader, writer = await asyncio.open_connection(*bench.address.split(":"))
    told, asked = request(RequestCode.GET_BROKER_CLUSTER_INFO, one_way=True), request(RequestCode.GET_KV_CONFIG)
    told.opaque, asked.opaque = 1, 2
    writer.write(encode(told) + encode(asked))
    size = int.from_bytes(await reader.readexactly(4), "big")
    response = decode(size.to_bytes(4, "big") + await reader.readexactly(size))
    assert (response.opaque, response.remark) == (2, "the custom field <namespace> is null")
    writer.close()


@pytest.mark.parametrize("later", [False, True])
async def test_a_bug_fails_one_request_and_not_those_of_its_tick(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """Also one in steps for which the turn had no time: nobody was told of it, and the peer waited."""

    def broken(topic: str) -> Steps[None]:
        if later:
            yield
        raise ZeroDivisionError("ours")
        yield

    monkeypatch.setattr(server_module, "SLICE_S", 0.0)
    monkeypatch.setattr(bench.server.routes, "route", broken)
    failed, fine = await asyncio.gather(
        bench.client.ask(bench.address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "N1"}), 5),
        bench.client.ask(bench.address, request(RequestCode.GET_NAMESRV_CONFIG), 5),
    )
    assert (failed.code, failed.remark, fine.code) == (1, "ZeroDivisionError: ours", 0)
    (told,) = [event.fields for event in bench.told if event.kind == "request failed"]
    assert (told["code"], told["reason"]) == (RequestCode.GET_ROUTEINFO_BY_TOPIC, "ZeroDivisionError('ours')")


async def test_metrics_and_health() -> None:
    settings = NameServerSettings(port=0, http_enabled=True, http_port=0)
    server = NameServer(settings, this_machine())
    host, port = await server.start()
    client = RemotingClient(this_machine(), RemotingSettings())
    for code in (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_BROKER_CLUSTER_INFO, 7777):
        await client.ask(f"{host}:{port}", request(code, {}), 5)
    for number in range(50):
        name = f"{number}" + "\u4e2d" * 500
        one = Announcement("c", name, 1, f"h{number}:1", "", 60.0, None, DataVersion(0, 1, 1), {})
        assert finished(server.routes.register(one, f"h{number}:2", server._clock.now()))
    assert server.http_address is not None
    pages = []
    for path in ("/metrics", "/health"):
        reader, writer = await asyncio.open_connection(*server.http_address)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        pages.append((await reader.read()).decode())
        writer.close()
    for line in (
        'nameserver_requests_total{code="106"} 2.0',
        'nameserver_requests_total{code="0"} 1.0',
        'nameserver_brokers{role="slave"} 50.0',
        "nameserver_brokers_displaced 0.0",
        "nameserver_connections 1.0",
        "nameserver_held_bytes 0.0",
        "tallystick_build_info{",
    ):
        assert line in pages[0], line
    assert '{"healthy": true, "brokers": 50, "topics": 0}' in pages[1], "of any length: how many, not which"
    taken = replace(settings, http_port=server.http_address[1])
    with pytest.raises(UsageError, match=f"cannot listen for HTTP: .*metricsPromExporterPort={taken.http_port}"):
        await NameServer(taken, this_machine()).start()
    await client.close()
    await server.close()


async def test_what_registrations_make_it_keep_counts_for_their_connection(bench: Bench) -> None:
    await bench.register(bench.client, 0)
    held = bench.server.kept_bytes
    assert held > 0
    other = bench.new_client()
    await bench.register(other, 1)
    assert bench.server.kept_bytes > held
    await bench.client.close()

    async def only_the_others() -> bool:  # with the topics, of which it is the first broker now
        return held // 2 < bench.server.kept_bytes <= held

    await until(only_the_others)
    await other.close()

    async def nothing() -> bool:
        return bench.server.kept_bytes == 0

    await until(nothing)


async def test_what_is_kept_is_counted_again_connection_by_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one turn they were a fifth of a second, every five seconds."""
    clients = [bench.new_client() for _ in range(3)]
    for number, client in enumerate(clients):
        await bench.register(client, number)
    counted: list[object] = []

    def held_bytes(link: object) -> int:
        counted.append(link)
        return 1

    monkeypatch.setattr(bench.server.routes, "held_bytes", held_bytes)
    await until(lambda: len(counted) > 2 * len(clients))  # with each scan
    counted.clear()
    steps = bench.server._count_kept()
    for done in range(1, 4):
        next(steps)
        assert len(counted) == done
    for client in clients:
        await client.close()


async def test_what_is_kept_is_not_counted_again_while_it_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more connections than a scan's pause has time for, counts would queue without end."""
    await bench.register(bench.client, 0)
    under_way: list[int] = []

    def held_bytes(link: object) -> int:
        assert bench.server._scanner is not None
        bench.server._scanner.cancel()
        bench.server._scan()  # its time has come meanwhile
        under_way.append(len(bench.server._chores._works))  # that wait behind this one
        return 1

    monkeypatch.setattr(bench.server.routes, "held_bytes", held_bytes)
    await until(lambda: len(under_way) == 5)
    assert set(under_way) == {0}


MANY = 2000  # topics, each of which is a turn of the loop here


async def test_others_are_answered_while_many_topics_are_registered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (slices, server_module):
        monkeypatch.setattr(module, "SLICE_S", 0.0)
    other = bench.new_client()
    await bench.register(other, 1)
    work = asyncio.create_task(bench.register(bench.client, 0, more=MANY))
    await until(lambda: bench.server.kept_bytes > 100_000, pause=0)  # what waits is counted
    told = await other.ask(bench.address, request(RequestCode.GET_NAMESRV_CONFIG), 5)
    assert told.code == 0 and not work.done()
    assert await work == {}
    listed = await other.ask(bench.address, request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), 5)
    assert len(dialect.read_as(bytes(listed.body), TopicNames).topics) == MANY + 2
    await other.close()


async def test_a_route_that_takes_more_than_a_slice_does_not_wait_for_all_brokers_that_register(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, brokers = bench.new_client(), [bench.new_client() for _ in range(4)]
    await bench.register(other, 0)
    for module in (slices, server_module):
        monkeypatch.setattr(module, "SLICE_S", 0.0)
    works = [asyncio.create_task(bench.register(broker, 1 + id, more=MANY)) for id, broker in enumerate(brokers)]
    await until(lambda: bench.server.kept_bytes > 400_000, pause=0)
    told = await other.ask(bench.address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "N1"}), 5)
    assert told.code == 0 and not all(work.done() for work in works)
    await asyncio.gather(*works)
    for client in (other, *brokers):
        await client.close()


async def test_a_registration_of_who_is_gone_is_not_gone_on_with(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slices, server_module):
        monkeypatch.setattr(module, "SLICE_S", 0.0)
    client = bench.new_client()
    work = asyncio.create_task(bench.register(client, 0, more=MANY))
    await until(lambda: bench.server.routes.topic_count > 0, pause=0)
    await client.close()
    await asyncio.gather(work, return_exceptions=True)
    await until(lambda: bench.server.routes.topic_count == 0 and not bench.server._registering._task)
    assert (bench.server.routes.sets.routes(), bench.server.kept_bytes) == ({}, 0)


async def test_the_long_requests_of_one_host_are_refused_for_another_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.register(bench.client, 0, more=1000)
    monkeypatch.setattr(server_module, "SLICE_S", 0.0)
    outcomes: dict[str, str] = {}
    works = bench.server._slices = Slices(SystemClock(), most=3)

    def long(name: str, host: str) -> None:
        """It ends with the first outcome of any."""
        until_one = iter(lambda: bool(outcomes), True)
        works.make(until_one, lambda outcome: outcomes.__setitem__(name, str(outcome)[:6]), host)

    for name in ("under way", "oldest", "newest"):
        long(name, "greedy")
    command = request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert (await bench.client.ask(bench.address, command, 30)).code == 0
    assert next(iter(outcomes.items())) == ("oldest", "3 long")
    await until(lambda: len(outcomes) == 3)
    outcomes.clear()
    for host in ("one", "another", "third"):
        long(host, host)
    assert (await bench.client.ask(bench.address, command, 30)).code == 2
    await works.close()


async def test_others_are_answered_while_a_change_waits_for_the_disk(tmp_path: Path) -> None:
    worker = HeldWorker()
    outside = replace(this_machine(), workers=lambda _: worker)
    server = NameServer(NameServerSettings(port=0, kv_config_path=str(tmp_path / "kv")), outside)
    host, port = await server.start()
    operator, other = (RemotingClient(this_machine(), RemotingSettings()) for _ in range(2))
    fields = {"namespace": "n", "key": "k", "value": "v"}
    asked = asyncio.create_task(operator.ask(f"{host}:{port}", request(RequestCode.PUT_KV_CONFIG, fields), 30))
    await until(lambda: len(worker.given) == 1)
    get = request(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"})
    assert (await other.ask(f"{host}:{port}", get, 30)).code == 22 and not asked.done()
    worker.do_one()
    assert (await asked).code == 0
    assert (await operator.ask(f"{host}:{port}", get, 30)).fields == {"value": "v"}
    assert server.kept_bytes == 0
    for client in (operator, other):
        await client.close()
    stopping = asyncio.create_task(server.close())
    await until(lambda: bool(worker.given))
    worker.do_one()
    await stopping
