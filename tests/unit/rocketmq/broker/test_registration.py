from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from support.stores import SteppingClock
from support.waiting import until
from tallystick.codec.steps import finished
from tallystick.errors import RequestTimeout
from tallystick.rocketmq.broker import registration
from tallystick.rocketmq.broker.registration import Masters, Member, Registrar
from tallystick.rocketmq.broker.topics import TopicDefaults, Topics
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.bodies import TopicTable
from tallystick.rocketmq.wire.own_headers import OwnRegisterBrokerResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import TopicConfig
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine

MASTER = Member("c0", "b0", "127.0.0.1:10911", id=0, ha_address="127.0.0.1:10912")
SLAVE = Member("c0", "b0", "127.0.0.1:11911", id=1, ha_address="127.0.0.1:11912")


class Announced:
    """A broker that does nothing but register."""

    def __init__(self, member: Member, *name_servers: str, timeout_s: float = 5.0) -> None:
        self.events: list[Event] = []
        self.found: list[Masters] = []
        events = Events(self.events.append)
        self.topics = Topics(TopicDefaults("b0", "c0"), SteppingClock(), self._changed)
        self.client = RemotingClient(this_machine(events), RemotingSettings(), on_lost=self._lost)
        self.registrar = Registrar(
            self.client,
            events=events,
            member=member,
            name_servers=name_servers,
            table=_copy_of(self.topics),
            masters_changed=self.found.append,
            timeout_s=timeout_s,
        )

    def _lost(self, address: str) -> None:
        self.registrar.connection_lost(address)

    def _changed(self) -> None:
        self.registrar.changed()

    async def close(self) -> None:
        await self.registrar.close()
        await self.client.close()


class Server(NameServer):
    def __init__(self, folder: Path, port: int = 0) -> None:
        settings = NameServerSettings(port=port, kv_config_path=str(folder / "kv.json"))
        super().__init__(settings, this_machine())

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
    await until(lambda: server.routes.sets.members("b0") == {0: MASTER.address})
    assert "TBW102" in finished(server.routes.topics())
    await until(lambda: broker.registrar.registered == {server.address: ""})
    await broker.close()
    assert server.routes.sets.members("b0") == {}


async def test_two_masters_of_one_name_hear_of_each_other_and_of_the_end(server: Server) -> None:
    promoted = Member("c0", "b0", "127.0.0.1:12911", id=0, ha_address="127.0.0.1:12912")
    old, new = Announced(MASTER, server.address), Announced(promoted, server.address)
    old.registrar.start()
    await until(lambda: bool(old.registrar.registered))
    assert old.registrar.rival is None
    new.registrar.start()
    await until(lambda: new.registrar.rival == MASTER.address)
    for _ in range(3):
        old.registrar.changed()  # as every 30 s
        await until(lambda: server.routes.sets.members("b0") == {0: MASTER.address})
        new.registrar.changed()
        await until(lambda: server.routes.sets.members("b0") == {0: promoted.address})
    assert old.registrar.rival == promoted.address
    (told,) = [event for event in old.events if event.kind == "another broker of this id"]
    assert (told.fields["other"], told.fields["broker"], told.fields["id"]) == (promoted.address, "b0", 0)
    await new.close()
    old.registrar.changed()
    await until(lambda: old.registrar.rival is None)
    assert old.events[-1].kind == "only broker of this id"
    assert len([event for event in new.events if event.kind == "another broker of this id"]) == 1
    await old.close()


async def test_what_one_name_server_says_of_a_rival_is_not_taken_back_by_another(server: Server) -> None:
    """And it is told once, whoever else says it, and of which other."""
    broker = Announced(MASTER, server.address)
    for name, rival in (("a", "127.0.0.1:1"), ("b", None), ("c", "127.0.0.1:2"), ("a", "127.0.0.1:3")):
        broker.registrar._note_rival(name, rival)
        assert broker.registrar.rival is not None
    assert [event.kind for event in broker.events] == ["another broker of this id"]
    broker.registrar._note_rival("a", None)
    assert broker.registrar.rival == "127.0.0.1:2"
    broker.registrar._note_rival("c", None)
    assert [event.kind for event in broker.events][1:] == ["only broker of this id"]
    await broker.close()


async def test_a_new_topic_is_known_at_once(server: Server) -> None:
    broker = Announced(MASTER, server.address)
    broker.registrar.start()
    await until(lambda: bool(broker.registrar.registered))
    assert "T" not in finished(server.routes.topics())
    broker.topics.put(TopicConfig("T", read_queues=3, write_queues=2))
    await until(lambda: "T" in finished(server.routes.topics()))
    route = finished(server.routes.route("T"))
    assert route is not None
    assert [(queues.broker, queues.read_queues, queues.write_queues) for queues in route.queues] == [("b0", 3, 2)]
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


async def test_a_slave_that_was_there_first_hears_of_its_master_soon(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "SEARCH_S", 0.02)
    slave = Announced(SLAVE, server.address)
    slave.registrar.start()
    await until(lambda: slave.found)
    assert slave.found[-1] == Masters()
    master = Announced(MASTER, server.address)
    master.registrar.start()
    await until(lambda: slave.found[-1] == Masters(MASTER.address, MASTER.ha_address))
    count = len(slave.found)
    assert count <= 4  # it asks for the set, and does not register, each time
    await slave.close()
    await master.close()


def test_a_broker_is_not_its_own_master() -> None:
    topics = Topics(TopicDefaults("b0", "c0"), SteppingClock(), lambda: None)
    registrar = _registrar_of(cast("RemotingClient", None), topics)  # it is never started
    assert registrar._newest([OwnRegisterBrokerResponse("127.0.0.1:1", MASTER.address)]) == Masters()
    assert registrar._newest([OwnRegisterBrokerResponse(), OwnRegisterBrokerResponse(None, "m:1")]) == Masters("m:1")


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
    again = Server(tmp_path, port)
    await again.listen()
    await until(lambda: again.routes.sets.members("b0") == {0: MASTER.address})
    await until(lambda: broker.registrar.registered == {server.address: ""})
    assert [event.kind for event in broker.events if "name server" in event.kind] == [
        "cannot register with a name server",
        "registered with a name server",
    ]
    await broker.close()
    await again.close()


async def test_a_name_server_that_was_restarted_knows_the_broker_at_once(tmp_path: Path) -> None:
    """For up to 30 s it told new clients that their topic does not exist."""
    server = Server(tmp_path)
    await server.listen()
    broker = Announced(MASTER, server.address)
    broker.registrar.start()
    await until(lambda: server.routes.sets.members("b0") == {0: MASTER.address})
    port = int(server.address.rpartition(":")[2])
    await server.close()
    again = Server(tmp_path, port)
    await again.listen()
    assert again.routes.sets.members("b0") == {}
    await until(lambda: again.routes.sets.members("b0") == {0: MASTER.address})
    assert "TBW102" in finished(again.routes.topics())
    await broker.close()
    await again.close()


async def test_a_connection_that_is_lost_again_and_again_is_not_made_without_pause(server: Server) -> None:
    broker = Announced(MASTER, server.address)
    broker.registrar.start()
    await until(lambda: broker.registrar.registered == {server.address: ""})
    for _ in range(100):
        broker.registrar.connection_lost(server.address)
    await until(lambda: len(broker.found) > 1)
    assert len(broker.found) == 2
    broker.registrar.connection_lost("127.0.0.1:1")
    await broker.close()


async def test_announced_when_the_name_servers_know_the_topic(server: Server) -> None:
    broker = Announced(MASTER, server.address)
    broker.registrar.start()
    known = []
    broker.topics.put(TopicConfig("T"))
    broker.registrar.when_announced(lambda: known.append("T" in finished(server.routes.topics())))
    assert known == []
    await until(lambda: bool(known))
    assert known == [True]
    broker.registrar.when_announced(lambda: known.append(True))
    assert known == [True, True], "nothing changed since"
    await broker.close()


async def test_a_name_server_that_is_down_keeps_nobody_waiting(server: Server) -> None:
    broker = Announced(MASTER, "127.0.0.1:1", server.address, timeout_s=60.0)
    broker.registrar.start()
    await until(lambda: len(broker.registrar.registered) == 2)
    broker.topics.put(TopicConfig("T"))
    known = []
    broker.registrar.when_announced(lambda: known.append("T" in finished(server.routes.topics())))
    await until(lambda: known == [True])
    assert server.routes.sets.members("b0") == {0: MASTER.address}
    failed = [event for event in broker.events if event.kind == "cannot register with a name server"]
    assert [event.fields["name_server"] for event in failed] == ["127.0.0.1:1"]
    await broker.close()


async def test_a_name_server_that_hangs_is_waited_for_as_long_as_the_time_out(server: Server) -> None:
    met: list[asyncio.StreamWriter] = []
    deaf = await asyncio.start_server(lambda reader, writer: met.append(writer), "127.0.0.1", 0)
    address = f"127.0.0.1:{deaf.sockets[0].getsockname()[1]}"
    broker = Announced(MASTER, address, server.address, timeout_s=0.3)
    broker.registrar.start()
    known = []
    broker.registrar.when_announced(lambda: known.append(server.routes.sets.members("b0")))
    await until(lambda: bool(known))
    assert known == [{0: MASTER.address}], "the other one was told meanwhile"
    await broker.close()
    deaf.close()
    for writer in met:
        writer.close()


async def test_without_name_servers_there_is_nothing_to_do() -> None:
    broker = Announced(MASTER)
    broker.registrar.start()
    known = []
    broker.registrar.when_announced(lambda: known.append(True))
    await broker.close()
    assert (broker.found, known) == ([], [True])


class SlowNameServer:
    """Stands for the client of name servers: each question is answered when the test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[None]] = []

    async def ask(self, name: str, command: Command, timeout_s: float) -> Command:
        self.asked.append(asyncio.get_running_loop().create_future())
        await self.asked[-1]
        return command.response(0)

    async def was_asked(self, times: int) -> None:
        await until(lambda: len(self.asked) == times)


@pytest.fixture
async def slow() -> SlowNameServer:
    return SlowNameServer()


@pytest.fixture
async def registrar(slow: SlowNameServer) -> AsyncIterator[Registrar]:
    topics = Topics(TopicDefaults("b0", "c0"), SteppingClock(), lambda: None)
    client = cast("RemotingClient", slow)
    made = _registrar_of(client, topics)
    made.start()
    yield made
    for task in made.tasks:
        task.cancel()


async def test_a_topic_that_is_made_during_a_registration_is_announced_by_the_next(
    slow: SlowNameServer, registrar: Registrar
) -> None:
    done: list[int] = []
    await slow.was_asked(1)  # without the topic
    registrar.changed()
    registrar.when_announced(lambda: done.append(len(slow.asked)))
    slow.asked[0].set_result(None)
    await slow.was_asked(2)
    assert done == []
    slow.asked[1].set_result(None)
    await until(lambda: done == [2])


async def test_changes_of_very_many_topics_are_registered_together(
    slow: SlowNameServer, registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them had all topics written and sent again at once, to each name server."""
    monkeypatch.setattr(registration, "TOPICS_A_SECOND", 0.001)
    await slow.was_asked(1)
    slow.asked[0].set_result(None)
    await until(lambda: registrar.registered == {"n:9876": ""})
    for _ in range(10):
        registrar.changed()
        await asyncio.sleep(0)
    assert len(slow.asked) == 1


class DoneWaiting:
    """Stands for ``asyncio.timeout`` and for the client of a name server: nothing is waited for, the time is noted."""

    def __init__(self, *fails: bool, refuses: bool = False) -> None:
        self.refuses = refuses
        self.pauses_s: list[float] = []
        self.over = asyncio.Event()
        self._fails, self._timeout = list(fails), asyncio.timeout

    def timeout(self, seconds: float) -> asyncio.Timeout:
        self.pauses_s.append(seconds)
        return self._timeout(0)

    async def ask(self, name: str, command: Command, timeout_s: float) -> Command:
        if not self._fails:
            self.over.set()
            await asyncio.Event().wait()
        fails = self._fails.pop(0)
        if fails and self.refuses:
            return command.response(1, "no room")
        if fails:
            raise RequestTimeout("no answer")
        return command.response(0)


@pytest.mark.parametrize(
    ("refuses", "longest_s"), [(False, [0.8, 1.0, 1.0]), (True, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])]
)
async def test_each_failure_doubles_the_pause_and_a_success_ends_that(
    refuses: bool, longest_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has no room read all topics again each second."""
    server = DoneWaiting(*[True] * (4 + len(longest_s)), False, True, True, refuses=refuses)
    topics = Topics(TopicDefaults("b0", "c0"), SteppingClock(), lambda: None)
    client = cast("RemotingClient", server)
    monkeypatch.setattr("tallystick.rocketmq.broker.registration.asyncio.timeout", server.timeout)
    registrar = _registrar_of(client, topics)
    registrar.start()
    await server.over.wait()
    assert server.pauses_s == [0.05, 0.1, 0.2, 0.4, *longest_s, 30.0, 0.05, 0.1]
    for task in registrar.tasks:
        task.cancel()


async def test_each_loss_of_a_connection_brings_a_registration(slow: SlowNameServer, registrar: Registrar) -> None:
    for times in range(1, 4):
        await slow.was_asked(times)
        slow.asked[-1].set_result(None)
        await until(lambda: registrar.registered == {"n:9876": ""})
        await asyncio.sleep(0)
        registrar.connection_lost("n:9876")
    await slow.was_asked(4)
    assert not slow.asked[3].done() and registrar.registered == {"n:9876": ""}


def _copy_of(topics: Topics) -> Callable[[], Awaitable[TopicTable]]:
    async def table() -> TopicTable:
        return topics.table()

    return table


def _registrar_of(client: RemotingClient, topics: Topics) -> Registrar:
    return Registrar(
        client,
        events=Events(),
        member=MASTER,
        name_servers=["n:9876"],
        table=_copy_of(topics),
        masters_changed=lambda masters: None,
        timeout_s=5.0,
    )


async def test_who_waited_for_a_name_server_until_the_time_out_is_called_once() -> None:
    """It may be heard of later that the change is known: the answer that waited has gone then."""
    called: list[None] = []
    broker = Announced(MASTER, "127.0.0.1:1", timeout_s=0.05)
    registrar = broker.registrar
    registrar._servers["127.0.0.1:1"].failure = ""
    registrar.when_announced(lambda: called.append(None))
    await until(lambda: bool(called))
    for server in registrar._servers.values():
        server.announced_change = registrar._changes
    registrar._end_announcements()
    assert called == [None]
    await broker.close()


async def test_topics_that_fit_no_more_are_told_of_each_time_that_begins_or_ends() -> None:
    broker = Announced(MASTER, "127.0.0.1:1")
    for count in (0, 3, 4, 0, 0, 2):
        broker.registrar._note_left_out(count)
    kinds = [event.kind for event in broker.events]
    assert kinds == ["topics not registered", "all topics registered", "topics not registered"]
    await broker.close()
