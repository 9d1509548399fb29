"""The processes of simulated brokers: a name server, a master and its slaves, and whole clients, each on its host."""

from __future__ import annotations

from dataclasses import replace

from tallystick.errors import DiskFull, StorageError, UsageError
from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.values import MASTER_ID
from tallystick.sim.brokers_judge import BrokersJudge
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.disk import PLENTY
from tallystick.sim.ha_disk import RecordDisk
from tallystick.sim.hosts import ClientHost, Host, JudgedWorld, World
from tallystick.sim.virtual.process import Process

NAME, PORT = "b", 10911  # of all brokers
NAMES_ADDRESS, NAMES_PORT = "10.0.0.250", 9876
NAME_SERVERS = (f"{NAMES_ADDRESS}:{NAMES_PORT}",)
CLIENT = BrokerClientSettings(
    route_refresh_s=2.0,
    heartbeat_s=2.0,
    request_timeout_s=1.0,
    send_timeout_s=3.0,
    topic_wait_s=2.0,
    max_inflight_bytes=8 * 1024,
    pull_count=8,
    pull_bytes=4 * 1024,
    pull_hold_s=2.0,
    pull_timeout_s=3.0,
    max_unacked_bytes=8 * 1024,
    commit_interval_s=1.0,
    rebalance_s=2.0,
    down_s=1.0,
)
HA = HaSettings(
    slave_timeout_ms=1000,
    sync_flush_timeout_ms=1000,
    heartbeat_ms=500,
    housekeeping_ms=3000,
    retry_ms=500,
    handshake_ms=300,
    greeting_ms=2000,
)
STORE = StoreSettings(
    commit_log_file_bytes=4096,
    consume_queue_file_units=16,
    index_slots=16,
    index_entries=48,
    memory_bytes=1 << 30,
    disk_delete_ratio=100,
    disk_clean_ratio=100,
    disk_refuse_ratio=100,
)

BrokersWorld = JudgedWorld[BrokersJudge, BrokersPlan]


class NameServerHost(Host[World]):
    """A machine with a name server, which stores nothing: brokers register there again."""

    def __init__(self, world: World, *, users_file: str = "") -> None:
        """``users_file``: whose signatures it asks for; empty: it asks for none."""
        super().__init__(world, "names", NAMES_ADDRESS)
        self._server: NameServer | None = None  # that answers
        self._settings = NameServerSettings(bind_host=NAMES_ADDRESS, port=NAMES_PORT, users_file=users_file)

    @property
    def answers(self) -> bool:
        return self._server is not None

    async def _run(self, process: Process) -> None:
        server = NameServer(self._settings, self._outside(process))
        await server.start()
        self._server = server

    async def _stop(self) -> None:
        server, self._server = self._server, None
        assert server is not None, "only one that answers is asked to stop"
        await server.close()

    def _forget(self) -> None:
        super()._forget()
        self._server = None


class BrokerHost(Host[BrokersWorld]):
    """A machine with a broker. Number 0 is the master."""

    disk_type = RecordDisk

    def __init__(self, world: BrokersWorld, number: int) -> None:
        super().__init__(world, f"b{number}", f"10.0.0.{number + 1}")
        self.is_slave, self._number = number > 0, number
        self.sync_flush = world.plan.slave_syncs[number - 1] if number else world.plan.sync_flush
        self._ends_may_be_unknown = False
        self.broker: Broker | None = None  # that answers
        self._store: MessageStore | None = None  # of the process

    @property
    def reached(self) -> int:
        """Returns the highest end that its log had in any of its lives."""
        return max(self._reached, self._store.end) if self._store is not None else self._reached

    @property
    def durable(self) -> int:
        """Returns the end of its synced log, now or when its last process ended."""
        return self._store.flushed if self._store is not None else self._durable

    @property
    def has_synced(self) -> bool:
        """Returns whether a loss of power leaves it messages. An empty slave begins at its master's newest file."""
        return self.durable > (self._store.first if self._store is not None else self._first)

    def new_disk(self) -> None:
        super().new_disk()
        self._reached = self._durable = self._first = 0  # by the processes before

    def promote(self) -> None:
        """Make it the master from its next start on, as an operator does."""
        self.is_slave = False

    def take_over(self) -> None:
        """Make it the master without a start; where it refuses, start it as one."""
        assert self.process is not None, "it answers"
        self.process.start(self._take_over(self.process))

    async def _take_over(self, process: Process) -> None:
        broker, self.is_slave = self.broker, False
        assert broker is not None, "it answers"
        try:
            await broker.take_role(self._world.plan.role, MASTER_ID)
            self._world.trace.note(process.name, "takes over")
        except (UsageError, StorageError) as refusal:
            self._world.trace.note(process.name, "does not take over", refusal)
            self._exits(process)

    def _settings(self) -> BrokerSettings:
        plan = self._world.plan
        return BrokerSettings(
            "/broker",
            NAME,
            broker_id=self._number if self.is_slave else 0,
            role=Role.SLAVE if self.is_slave else plan.role,
            host=self.address,
            port=PORT,
            name_servers=NAME_SERVERS,
            register_timeout_ms=1000,
            ha=replace(HA, copy_whole_log=plan.whole_log),
            remoting=RemotingSettings(held_limit_bytes=plan.held_bytes),
            store=replace(
                STORE,
                commit_log_file_bytes=plan.file_bytes,
                sync_flush=self.sync_flush,
                max_open_files=plan.handles,
                flush_interval_ms=plan.flush_ms,
                ends_may_be_unknown=self._ends_may_be_unknown,
            ),
        )

    @property
    def answers(self) -> bool:
        return self.broker is not None

    async def _run(self, process: Process) -> None:
        world = self._world
        try:
            broker = self.broker = await start_broker(self._settings(), self._outside(process))
        except UsageError as refusal:
            self._refused(process, refusal)
            return
        except Exception as error:
            self._allow(process, error)
            return
        self._store = broker.parts.store
        self._watch_tables(broker)
        world.judge.started(self)
        self._allow(process, await broker.failure)

    def _watch_tables(self, broker: Broker) -> None:
        save, tables = broker.tables.changed, self._world.judge.tables

        def changed() -> None:
            save()
            if self._store is broker.parts.store:  # also while it stops: it serves what came before
                tables.changed(self, broker)

        broker.tables.changed = changed

    def _refused(self, process: Process, refusal: UsageError) -> None:
        """A copy of a part of a log becomes a master's when an operator accepts that places may be given again."""
        self._world.trace.note(process.name, "refuses", refusal)
        if self.is_slave or not self._number or self._ends_may_be_unknown:
            self._world.judge.fail("B9", f"{self.id} does not start: {refusal!r}")
        self._ends_may_be_unknown = True
        self._world.judge.expectation.places_are_given_again()
        self._exits(process)

    async def _stop(self) -> None:
        broker, self.broker = self.broker, None
        assert broker is not None, "only one that answers is asked to stop"
        await broker.stop()

    def _forget(self) -> None:
        super()._forget()
        self._reached, self._durable = self.reached, self.durable
        if self._store is not None:
            self._first = self._store.first
            self._world.judge.ends(self, self._store)
        self.broker = self._store = None

    def _lost_power(self) -> None:
        self._world.judge.lost_power(self)

    def _allow(self, process: Process, error: Exception) -> None:
        """A broker may end for want of space, or by its disk, and for nothing else that happens here."""
        self._world.trace.note(process.name, "ends", repr(error))
        full = isinstance(error, StorageError) and self.disk.capacity < PLENTY
        if not isinstance(error, DiskFull) and not full and not self.ends_by_its_disk(error):
            self._world.judge.fail("B9", f"{self.id} ended by itself: {error!r}")
        self._exits(process)


class BrokerClientHost(ClientHost[BrokersWorld, RocketMQ]):
    """A machine on which one program uses the brokers."""

    def _client(self) -> RocketMQ:
        return RocketMQ(NAME_SERVERS, self.outside(), CLIENT, program=self.name)
