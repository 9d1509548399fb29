from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.stores import SteppingClock
from support.waiting import until
from tallystick.rocketmq.broker import registration
from tallystick.rocketmq.broker.registration import Identity, Masters, Registrar
from tallystick.rocketmq.broker.topics import TopicDefaults, Topics
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.headers import RegisterBrokerAnswer
from tallystick.rocketmq.wire.values import TopicConfig
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Event, Events
from tallystick.runtime.network import TcpNetwork

MASTER = Identity("c0", "b0", 0, "127.0.0.1:10911", "127.0.0.1:10912")
SLAVE = Identity("c0", "b0", 1, "127.0.0.1:11911", "127.0.0.1:11912")


class Announced:
    """A broker that does nothing but register."""

    def __init__(self, identity: Identity, *name_servers: str) -> None:
        self.events: list[Event] = []
        self.found: list[Masters] = []
        events = Events(self.events.append)
        self.topics = Topics(TopicDefaults("b0", "c0"), SteppingClock(), self._changed)
        self.client = RemotingClient(TcpNetwork(), SystemClock(), events, RemotingSettings())
        self.registrar = Registrar(self.client, events, identity, name_servers, self.topics.table, self.found.append)

    def _changed(self) -> None:
        self.registrar.changed()

    async def close(self) -> None:
        await self.registrar.close()
        await self.client.close()


class Server(NameServer):
    def __init__(self, folder: Path) -> None:
        settings = NameServerSettings(port=0, kv_config_path=str(folder / "kv.json"))
        super().__init__(TcpNetwork(), OsDisk(), SystemClock(), Events(), settings)

    async def listen(self) -> None:
        host, port = await self.start()
        self.address = f"{host}:{port}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    await server.listen()
    yield server
    await server.close()


async def test_a_broker_is_known_at_once_and_gone_when_it_stops(server: Server) -> None:
    broker = Announced(MASTER, server.address)
    broker.registrar.start()
    await until(lambda: server.routes.members("b0") == {0: MASTER.address})
    assert "TBW102" in server.routes.topics()
    await until(lambda: broker.registrar.registered == {server.address: ""})
    await broker.close()
    assert server.routes.members("b0") == {}


async def test_a_new_topic_is_known_at_once(server: Server) -> None:
    broker = Announced(MASTER, server.address)
    broker.registrar.start()
    await until(lambda: bool(broker.registrar.registered))
    broker.topics.put(TopicConfig("T"))
    await until(lambda: "T" in server.routes.topics())
    await broker.close()


async def test_a_slave_is_told_where_its_master_is(server: Server) -> None:
    master, slave = Announced(MASTER, server.address), Announced(SLAVE, server.address)
    master.registrar.start()
    await until(lambda: bool(master.registrar.registered))
    slave.registrar.start()
    await until(lambda: bool(slave.found))
    assert slave.found == [Masters(MASTER.address, MASTER.ha_address)]
    assert master.found == [Masters()]
    await slave.close()
    await master.close()


async def test_a_name_server_that_lost_sight_of_the_master_is_no_reason_to_leave_it(server: Server) -> None:
    master, slave = Announced(MASTER, server.address), Announced(SLAVE, server.address)
    master.registrar.start()
    await until(lambda: bool(master.registrar.registered))
    slave.registrar.start()
    await until(lambda: len(slave.found) == 1)
    await master.close()
    slave.registrar.changed()
    await until(lambda: len(slave.found) == 2)
    assert slave.found[1] == slave.found[0]
    await slave.close()


def test_a_broker_is_not_its_own_master() -> None:
    registrar = Registrar(None, Events(), MASTER, (), dict, list)  # type: ignore[arg-type]  # it is never started
    assert registrar._newest([RegisterBrokerAnswer("127.0.0.1:1", MASTER.address)]) == Masters()
    assert registrar._newest([RegisterBrokerAnswer(), RegisterBrokerAnswer(None, "m:1")]) == Masters("m:1")


async def test_a_name_server_that_is_away_is_tried_again_and_complained_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RETRY_S", 0.01)
    server = Server(tmp_path)
    await server.listen()
    await server.close()
    broker = Announced(MASTER, server.address)
    broker.registrar.start()
    await until(lambda: bool(broker.registrar.registered.get(server.address)))
    port = int(server.address.rpartition(":")[2])
    again = NameServer(
        TcpNetwork(),
        OsDisk(),
        SystemClock(),
        Events(),
        NameServerSettings(port=port, kv_config_path=str(tmp_path / "kv")),
    )
    await again.start()
    await until(lambda: again.routes.members("b0") == {0: MASTER.address})
    await until(lambda: broker.registrar.registered == {server.address: ""})
    assert [event.kind for event in broker.events if "name server" in event.kind] == [
        "cannot register with a name server",
        "registered with a name server",
    ]
    await broker.close()
    await again.close()


async def test_without_name_servers_there_is_nothing_to_do() -> None:
    broker = Announced(MASTER)
    broker.registrar.start()
    await broker.close()
    assert broker.found == []
