"""The processes of a life with keys: bookies, a name server and a broker that ask who comes, and whole clients."""

from __future__ import annotations

import asyncio
import itertools
import random
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, TypeVar

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.errors import TallyError
from tallystick.rocketmq.broker.access.settings import AccessSettings
from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.wire.signature import Credentials
from tallystick.rocketmq.wire.values import TopicConfig
from tallystick.runtime.events import Event, Events
from tallystick.sim import brokers_hosts as brokers
from tallystick.sim.cluster_hosts import CLIENT, BookieHost, BookieWorld
from tallystick.sim.cluster_metadata import MetadataService
from tallystick.sim.ha_disk import RecordDisk
from tallystick.sim.handshakes_judge import HandshakeJudge
from tallystick.sim.handshakes_keys import KeyHolder, Keyring
from tallystick.sim.handshakes_plan import HandshakePlan
from tallystick.sim.hosts import ClientHost, Host
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process, Timers
from tallystick.sim.virtual.trace import Trace

BROKER_ADDRESS = "10.0.0.200"
TOPIC = "keyed"
AGAIN_S = 0.5

C = TypeVar("C", bound=AbstractAsyncContextManager[Any])


class KeyedWorld(BookieWorld):
    """With the keys and the plan. The judge hears of all events."""

    service: MetadataService
    judge: HandshakeJudge

    def __init__(
        self,
        loop: Timers,
        *,
        rng: random.Random,
        trace: Trace,
        fabric: Fabric,
        service: MetadataService,
        judge: HandshakeJudge,
        plan: HandshakePlan,
        keys: Keyring,
    ) -> None:
        super().__init__(loop, rng=rng, trace=trace, fabric=fabric, sync_s=plan.sync_s, service=service, judge=judge)
        self.plan, self.keys = plan, keys

    def events(self, name: str, *listeners: Callable[[Event], None]) -> Events:
        return super().events(name, self.judge.on_event, *listeners)


class KeyedBookieHost(BookieHost):
    """A machine with a bookie that lets nobody in without a secret."""

    _world: KeyedWorld

    @property
    def _settings(self) -> BookieSettings:
        keys, plan = self._world.keys, self._world.plan
        security = SecuritySettings(mechanisms=plan.offered, users_file=keys.users_file)
        return replace(super()._settings, security=security)


class KeyedBrokerHost(Host[KeyedWorld]):
    """A machine with a broker that asks for signatures."""

    disk_type = RecordDisk

    def __init__(self, world: KeyedWorld) -> None:
        super().__init__(world, "broker", BROKER_ADDRESS)
        self._broker: Broker | None = None

    @property
    def answers(self) -> bool:
        return self._broker is not None

    async def _run(self, process: Process) -> None:
        keys = self._world.keys
        access = AccessSettings(authenticates=True, first_user=keys.sender, inner_credentials=keys.broker)
        settings = BrokerSettings(
            "/broker",
            brokers.NAME,
            host=self.address,
            port=brokers.PORT,
            name_servers=brokers.NAME_SERVERS,
            register_timeout_ms=1000,
            access=access,
            store=brokers.STORE,
        )
        broker = self._broker = await start_broker(settings, self._outside(process))
        if broker.tables.topics.get(TOPIC) is None:
            broker.tables.topics.put(TopicConfig(TOPIC))

    async def _stop(self) -> None:
        broker, self._broker = self._broker, None
        assert broker is not None, "only one that answers is asked to stop"
        await broker.stop()

    def _forget(self) -> None:
        super()._forget()
        self._broker = None


class ServedHost(ClientHost[KeyedWorld, C]):
    """A machine on which a program asks for the same again and again."""

    def __init__(self, world: KeyedWorld, number: int, name: str) -> None:
        super().__init__(world, number, name)
        self.success_began_at = -1.0  # of the newest request that was carried out

    async def _use(self, client: C) -> None:
        loop = asyncio.get_running_loop()
        for number in itertools.count():
            began_at = loop.time()
            try:
                await self._ask(client, f"{self.name} {number}".encode())
            except TallyError as error:
                self._world.trace.note(self.name, "fails", type(error).__name__)
            else:
                self.success_began_at = began_at
                self._world.trace.note(self.name, "is served")
            await asyncio.sleep(AGAIN_S)

    def begin(self) -> asyncio.Task[None]:
        """Begin the program, which has no end."""
        return self.run(self._use)

    @abstractmethod
    async def _ask(self, client: C, payload: bytes) -> None:
        """Ask once. Raises TallyError."""


class KeyedClientHost(ServedHost[BookKeeper]):
    """It writes and reads ledgers, if it is let in."""

    def __init__(self, world: KeyedWorld, number: int, holder: KeyHolder) -> None:
        super().__init__(world, number, f"{holder.plan.kind}{number}")
        self.holder = holder

    def _client(self) -> BookKeeper:
        holder = self.holder
        security = ClientSecurity(
            user=holder.user, password_file=holder.password_file, mechanisms=holder.plan.mechanisms
        )
        driver = self._world.service.connect(self.process)
        return BookKeeper(driver, self.outside(), replace(CLIENT, wire=holder.plan.wire, security=security))

    async def _ask(self, client: BookKeeper, payload: bytes) -> None:
        async with client.create_ledger(2, write_quorum=2, ack_quorum=2, password=b"pw") as writer:
            await writer.append(payload)
        async with client.open_ledger(writer.id, password=b"pw") as reader:
            assert [bytes(entry.data) async for entry in reader] == [payload]


class SenderHost(ServedHost[RocketMQ]):
    """It sends messages, signed with these credentials."""

    def __init__(self, world: KeyedWorld, number: int, name: str, credentials: Credentials) -> None:
        super().__init__(world, number, name)
        self.credentials = credentials

    def _client(self) -> RocketMQ:
        given = BrokerSecurity(access_key=self.credentials.access_key, secret_key=self.credentials.secret_key)
        settings = replace(brokers.CLIENT, security=given)
        return RocketMQ(brokers.NAME_SERVERS, self.outside(), settings, program=self.name)

    async def _ask(self, client: RocketMQ, payload: bytes) -> None:
        await client.producer("senders").send(TOPIC, payload)
