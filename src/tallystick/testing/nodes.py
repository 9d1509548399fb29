"""The nodes of a test cluster: production servers, each with a disk in memory, which die and start again on command."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from tallystick.admin.dev_nodes import NAME_SERVER
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.errors import UsageError
from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.arguments import payload_bytes
from tallystick.runtime.outside import Outside
from tallystick.sim.ha_disk import RecordDisk
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.worker import DelayWorker
from tallystick.testing.world import SESSION_S, InProcessWorld

BOOKIE_PORT, BROKER_PORT, NAMES_PORT = 3181, 10911, 9876
MIB = 1024 * 1024
SYNC_S = 0.001  # at most, what a disk takes for a call; in real time nothing
POLL_S = 0.005
COLLECT_S = 600.0  # between two looks of a bookie for deleted ledgers
STORAGE = StorageSettings(journal_segment_bytes=MIB, journal_spare_segments=2, memtable_bytes=4 * MIB)
HA = HaSettings(retry_ms=200)
STORE = StoreSettings(
    commit_log_file_bytes=8 * MIB,
    consume_queue_file_units=4096,
    index_slots=1000,
    index_entries=4000,
    memory_bytes=1 << 30,
    disk_delete_ratio=100,
    disk_clean_ratio=100,
    disk_refuse_ratio=100,
)

Failure = asyncio.Future[Exception]


class Node(ABC):
    """One server. What it stored outlives its process; what it did not sync is lost with the power, or not."""

    def __init__(self, world: InProcessWorld, name: str, number: int, ports: tuple[int, ...]) -> None:
        self.name, self.address, self._ports = name, world.address(number), ports
        self._world, self._boots = world, 0
        world.hosts.append(self.address)
        self._disk = RecordDisk(world.chance())
        self._process: Process | None = None
        self._ready: asyncio.Future[None] | None = None  # of the process
        self.failure: Exception | None = None  # why the last process ended by itself

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {'runs' if self.is_running else 'is down'}>"

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None

    @property
    def port(self) -> int:
        """Where clients reach it, at ``address``."""
        return self._ports[0]

    async def open(self) -> None:
        """Take its ports. Raises UsageError."""
        await self._world.listen(self.address, *self._ports)

    async def start(self) -> None:
        """Start it, unless it runs. It answers when this returns. Raises what its start raises, UsageError if it is
        killed meanwhile."""
        if self._process is None:
            self._boots += 1
            self.failure = None
            self._world.fabric.power_on(self.address)
            process = self._process = Process(self._world.loop, f"{self.name}.{self._boots}", self.address)
            self._ready = asyncio.get_running_loop().create_future()
            process.start(self._live(process, self._ready))
        assert self._ready is not None, "it runs"
        await asyncio.shield(self._ready)

    async def _live(self, process: Process, ready: asyncio.Future[None]) -> None:
        try:
            failure = await self._run(process)
        except Exception as error:
            ready.set_exception(error)
            self._end(process)
            return
        ready.set_result(None)
        self.failure = await failure
        self._end(process)

    async def stop(self) -> None:
        """Stop it in order, as SIGTERM does."""
        process = self._process
        if process is not None:
            await self.start()  # it may still be at that
            await process.start(self._stop())
            self._end(process)

    def kill(self) -> None:
        """Its process dies, as with SIGKILL: what it wrote stays, also what it did not sync."""
        if self._process is not None:
            self._end(self._process)

    def lose_power(self) -> None:
        """Its machine dies: what was not synced is lost, kept or torn, and nobody is told that connections end."""
        if (process := self._process) is not None:
            self._forget()
            self._world.power_off(process)
            self._disk.power_loss()

    def _end(self, process: Process) -> None:
        if self._process is process:
            self._forget()
            self._world.kill(process)
            self._disk.kill()

    def _forget(self) -> None:
        self._process = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(UsageError("it was killed before it answered", node=self.name))

    def pause(self) -> None:
        """It stands still, as with SIGSTOP; in real time it hears and says nothing. Until ``resume``."""
        if self._process is not None and self._world.is_virtual:
            self._process.pause()
        else:
            self._world.isolate(self.address)

    def resume(self) -> None:
        """It goes on after ``pause``."""
        if self._process is not None and self._world.is_virtual:
            self._process.go_on()
        else:
            self._world.join(self.address)

    def reset(self) -> None:
        """All its connections end."""
        self._world.fabric.reset_all(self.address)

    def corrupt(self, content: bytes) -> int:
        """Flip a bit wherever the disk has these bytes. Returns in how many places.

        What a process has in memory stays as it is: a bookie keeps entries there until it stops or is restarted. Raises
        UsageError for what is no bytes, or none at all, which is everywhere.
        """
        content = payload_bytes(content, "content")
        if not content:
            raise UsageError("content is what the disk has: at least one byte")
        place_count = 0
        for path in self._disk.files():
            data, at = self._content(path), -1
            while (at := data.find(content, at + 1)) >= 0:
                self._disk.flip(path, at)
                place_count += 1
        return place_count

    def _content(self, path: str) -> bytes:
        with self._disk.undisturbed():
            file = self._disk.open(path)
            try:
                return file.read(file.size(), 0)
            finally:
                file.close()

    def _outside(self, process: Process) -> Outside:
        world = self._world
        return Outside(
            world.fabric.network(process),
            self._disk,
            world.clock,
            world.events(self.name),
            workers=lambda name: DelayWorker(process, world.chance(), SYNC_S if world.is_virtual else 0.0),
            random=world.chance(),
        )

    @abstractmethod
    async def _run(self, process: Process) -> Failure:
        """Start the server, until it answers; a future with the reason why it cannot go on."""

    @abstractmethod
    async def _stop(self) -> None: ...


class BookieNode(Node):
    """A storage node of ledgers."""

    def __init__(self, world: InProcessWorld, name: str, number: int) -> None:
        super().__init__(world, name, number, (BOOKIE_PORT,))
        self.bookie: Bookie | None = None  # of the process that answers

    async def _run(self, process: Process) -> Failure:
        world = self._world
        settings = BookieSettings(
            world.uri,
            ("/bookie/journal",),
            ("/bookie/ledgers",),
            port=BOOKIE_PORT,
            bookie_id=self.name,
            advertised_host=self.address,
            session_timeout_s=SESSION_S,
            gc_wait_s=COLLECT_S,
        )

        async def connect(uri: str, *, session_timeout_s: float) -> MetadataDriver:
            return await world.connect(process)

        self.bookie = await start_bookie(settings, self._outside(process), STORAGE, connect)
        return self.bookie.failure

    async def _stop(self) -> None:
        assert self.bookie is not None, "it answers"
        await self.bookie.stop()

    def _forget(self) -> None:
        super()._forget()
        self.bookie = None


class NameServerNode(Node):
    """It keeps nothing: all that it knows brokers tell it again."""

    def __init__(self, world: InProcessWorld, number: int) -> None:
        super().__init__(world, NAME_SERVER, number, (NAMES_PORT,))
        self.server: NameServer | None = None  # of the process that answers

    async def _run(self, process: Process) -> Failure:
        settings = NameServerSettings(bind_host=self.address, port=NAMES_PORT)
        server = NameServer(settings, self._outside(process))
        await server.start()
        self.server = server
        return asyncio.get_running_loop().create_future()

    async def _stop(self) -> None:
        assert self.server is not None, "it answers"
        await self.server.close()

    def _forget(self) -> None:
        super()._forget()
        self.server = None


class BrokerNode(Node):
    """A master, or a slave of ``master``. It answers when the name server, if that runs, knows it."""

    def __init__(
        self, world: InProcessWorld, name: str, number: int, names: NameServerNode, master: BrokerNode | None
    ) -> None:
        super().__init__(world, name, number, (BROKER_PORT, BROKER_PORT + 1))
        self.master, self._names = master, names
        self.slaves: list[BrokerNode] = []  # where there are some a send waits for one of them
        self.broker: Broker | None = None  # of the process that answers
        if master is not None:
            master.slaves.append(self)

    @property
    def is_slave(self) -> bool:
        """Whether it was started as the slave of another broker."""
        return self.master is not None

    @property
    def _settings(self) -> BrokerSettings:
        base, _, slave = self.name.partition("-s")
        role = Role.SYNC_MASTER if self.slaves else Role.ASYNC_MASTER
        return BrokerSettings(
            "/broker",
            base,
            broker_id=int(slave or 0),
            role=Role.SLAVE if slave else role,
            host=self.address,
            port=BROKER_PORT,
            name_servers=(f"{self._names.address}:{NAMES_PORT}",),
            register_timeout_ms=1000,
            ha=HA,
            store=STORE,
        )

    async def _run(self, process: Process) -> Failure:
        self.broker = await start_broker(self._settings, self._outside(process))
        while not self._is_known(self.broker):  # noqa: ASYNC110  # nobody tells of it
            await asyncio.sleep(POLL_S)
        return self.broker.failure

    def _is_known(self, broker: Broker) -> bool:
        settings, server = broker.parts.settings, self._names.server
        return server is None or settings.broker_id in server.routes.sets.members(settings.name)

    @property
    def is_settled(self) -> bool:
        """The name server knows it, and its slaves that run are in sync."""
        if self.broker is None or not self._is_known(self.broker):
            return False
        running = sum(slave.is_running for slave in self.slaves)
        return running == 0 or self.broker.parts.ha_status().in_sync_slaves >= running

    async def _stop(self) -> None:
        assert self.broker is not None, "it answers"
        await self.broker.stop()

    def _forget(self) -> None:
        super()._forget()
        self.broker = None
