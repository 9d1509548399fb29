"""One broker, from its folder to its registration, and back in reverse (``BrokerController``).

::

    folder locked ─► log recovered ─► tables loaded ─► HA port ─► client ports ─► registered

A master feeds slaves at its HA port. A slave learns from the name servers where that is, follows it, and copies the
tables beside (H1); it serves consumers with what it has (H3, H13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from msgspec import structs

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.access.access import BrokerAccess
from tallystick.rocketmq.broker.admin import admin_processors
from tallystick.rocketmq.broker.client_requests import ClientRequests
from tallystick.rocketmq.broker.clients import ClientsCore
from tallystick.rocketmq.broker.config_files import ConfigFiles
from tallystick.rocketmq.broker.dashboard_metrics import DashboardCollector
from tallystick.rocketmq.broker.deletions import Deletions
from tallystick.rocketmq.broker.idle_groups import make_room_for_groups
from tallystick.rocketmq.broker.lock_file import LockFile
from tallystick.rocketmq.broker.log import BrokerLog, Listeners
from tallystick.rocketmq.broker.metadata_sync import MetadataSync
from tallystick.rocketmq.broker.metrics import BrokerCounts, BrokerReadings, registry
from tallystick.rocketmq.broker.offset_pages import OFFSETS, OffsetPages
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.ports import Address, BrokerPorts
from tallystick.rocketmq.broker.pull import Pulls
from tallystick.rocketmq.broker.queue_pages import QUEUE_ENDS, QueuePages
from tallystick.rocketmq.broker.registered_topics import permitted
from tallystick.rocketmq.broker.registration import BrokerIdentity, Masters, Member, Registrar
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.role_taking import RoleTaking
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.broker.send import Sends
from tallystick.rocketmq.broker.send_checks import SendChecks
from tallystick.rocketmq.broker.sendback import SendBack
from tallystick.rocketmq.broker.server import Requests
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.sink_checks import SinkChecks
from tallystick.rocketmq.broker.sink_requests import SINKS, SinkPages
from tallystick.rocketmq.broker.store_folder import lock_folder, open_store
from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.rocketmq.ha.acks import Settle
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.server_requests import ServerRequests
from tallystick.rocketmq.remoting.slices import Slices
from tallystick.rocketmq.remoting.tls import with_tls
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import Arrival
from tallystick.rocketmq.wire.bodies import HaStatus
from tallystick.rocketmq.wire.message_ids import UniqueKeys, encode_host
from tallystick.runtime.health import HealthPages
from tallystick.runtime.outside import Outside
from tallystick.runtime.tasks import watch

LEAST_FILES = 1024  # with fewer a crowd would take those of the store, and a broker that cannot open these stops


async def start_broker(settings: BrokerSettings, outside: Outside) -> Broker:
    """Returns a broker that serves requests; ``stop`` it. It registers as soon as a name server can be reached.

    Raises UsageError (settings, folder in use, port), StorageError (CorruptRecord names file and offset).
    """
    broker = Broker(settings, with_tls(outside, settings.tls))
    try:
        await broker._start()
    except BaseException:
        await broker.stop()
        raise
    return broker


class Broker:
    """Made by ``start_broker``. ``failure`` gets an exception when the broker cannot go on; ``stop`` it in any case."""

    def __init__(self, settings: BrokerSettings, outside: Outside) -> None:
        self.settings, self._outside, self.standing = settings, outside, Standing(settings.role, settings.broker_id)
        self._stack = AsyncExitStack()  # what to undo, newest first
        self._registrar: Registrar | None = None
        self.counts = BrokerCounts()
        self._ready = False
        self._ports = BrokerPorts(settings, outside)
        self._stack.callback(self._ports.close)
        self.ha_address: Address | None = None
        self.http_address: Address | None = None
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    @property
    def address(self) -> Address:
        """The host and port for clients."""
        return self._ports.address

    @property
    def fast_address(self) -> Address:
        """The host and port for all requests of clients but pulls."""
        return self._ports.fast_address

    @property
    def memory(self) -> Memory:
        """The memory that the connections of clients take."""
        return self._server.memory

    async def stop(self) -> None:
        """Unregister, close all connections, sync, save, and unlock the folder."""
        await self._stack.aclose()
        if self._ready and not self.failure.done():
            self._ready = False
            self._outside.events.emit(
                "broker stopped",
                broker=self.settings.name,
                id=self.standing.broker_id,
                end=self.parts.store.end,
                reason="asked to; synced and saved",
            )

    async def _start(self) -> None:
        self._check()
        store = await self._open_store()
        self._open_log(store)
        self._load_tables(store)
        self._open_sync(store)
        await self.take_role(self.settings.role, self.settings.broker_id)
        self.parts = self._build_parts(store)
        self._build_requests()
        self.log.start()
        await self._listen()
        self._register()
        if self.settings.http_enabled:
            await self._listen_http()
        self._ready = True

    def _check(self) -> None:
        """Raises UsageError where a broker cannot work."""
        outside = self._outside
        if outside.open_files < LEAST_FILES:
            remark = f"a broker must be allowed {LEAST_FILES} open files (ulimit -Hn)"
            raise UsageError(remark, open_files=outside.open_files)
        if not self.standing.is_slave:
            self._ports.check_ha_port()

    async def _open_store(self) -> MessageStore:
        """Lock the folder, and open what is in it."""
        settings, outside = self.settings, self._outside
        self._stack.callback(lock_folder(settings, outside).release)
        self._worker = outside.workers("tally-broker")  # for what is seldom: opening, deletions, ends of queues
        self._stack.push_async_callback(self._end_worker)
        port, is_slave = self.address[1], self.standing.is_slave
        return await self._worker.run(partial(open_store, settings, outside, port=port, is_slave=is_slave))

    def _open_log(self, store: MessageStore) -> None:
        outside = self._outside
        listeners = Listeners(self._settled, self._awaited, self._arrived, self._following, self._fail, self._rebuilt)
        self._instance = f"{outside.random.getrandbits(64):016x}"
        self.log = BrokerLog(
            outside,
            store=store,
            settings=self.settings,
            standing=self.standing,
            listeners=listeners,
            instance=self._instance,
        )
        self._stack.push_async_callback(self.log.close)
        self._deletions = Deletions(outside.events, self._worker)
        self._stack.push_async_callback(self._deletions.close)

    def _open_sync(self, store: MessageStore) -> None:
        """Make what asks other brokers, and what changes between master and slave."""
        settings, outside = self.settings, self._outside
        self._client = RemotingClient(outside, settings.remoting, None, self._connection_lost, self._access.credentials)
        self._stack.push_async_callback(self._client.close)
        self.sync = MetadataSync(
            self._client,
            clock=outside.clock,
            events=outside.events,
            tables=self.tables,
            follow_status=self.log.follow_status,
            queues=store.replicated,
            worker=self._worker,
            access=self._access.table,
        )
        self._stack.push_async_callback(self.sync.close)
        self._roles = RoleTaking(
            standing=self.standing,
            log=self.log,
            sync=self.sync,
            tables=self.tables,
            saver=self._saver,
            lock_file=self._lock_file,
            lock_saver=self._lock_saver,
            ha_port=settings.listen_ha_port,
            failed=self._fail,
        )

    async def _end_worker(self) -> None:
        await self._worker.idle()
        self._worker.close()

    def _load_tables(self, store: MessageStore) -> None:
        settings, outside = self.settings, self._outside
        files = ConfigFiles(outside.disk, settings.store_dir)
        self.tables = BrokerTables(
            files,
            settings=settings,
            standing=self.standing,
            clock=outside.clock,
            events=outside.events,
            topics_changed=self._topics_changed,
            end_of=lambda topic, queue_id: store.queue_range(topic, queue_id)[1],
        )
        self._lock_file = LockFile(files, outside.clock, self.standing)
        clock, events, workers = outside.clock, outside.events, outside.workers
        self._saver = Saver(self.tables, files, clock, events, workers("tally-tables"))
        self._lock_saver = Saver(self._lock_file, files, clock, events, workers("tally-locks"))
        self._access = BrokerAccess(files, settings=settings, standing=self.standing, outside=outside)
        for saver in (self._saver, self._lock_saver, self._access.saver):
            self._stack.push_async_callback(saver.close)
            saver.start()
            watch(saver.tasks, self._fail)
        self._access.start(self._fail)
        self._stack.push_async_callback(self._access.close)

    async def take_role(self, role: Role, broker_id: int) -> None:
        """Become a master, or a slave: at the start, and when the broker was the other one. A running master becomes
        one of the other kind and keeps its slaves.

        A master refuses sends before it leaves its slaves. A slave does so until the end of its log is settled, and
        queues and offsets go on where its master's were, all of it durable. Raises UsageError, StorageError: a slave
        that may not become a master goes on as a slave; a running one keeps its id.
        """
        if self._ready and self.standing.is_slave == (role is Role.SLAVE):
            return self._roles.stay(role, broker_id)
        if role is not Role.SLAVE and self.standing.is_slave:
            self._ports.check_ha_port()  # its store is a master's, durably, before it listens
        self.ha_address = await self._roles.take(role, broker_id)
        if self._registrar is not None:
            await self._registrar.become(self._member())

    def _build_parts(self, store: MessageStore) -> Parts:
        settings, tables = self.settings, self.tables
        slices = Slices(self._outside.clock)
        self._stack.push_async_callback(slices.close)
        identity = BrokerIdentity(settings.cluster, settings.name, self._client_address, self._instance)
        return Parts(
            settings=settings,
            standing=self.standing,
            identity=identity,
            clock=self._outside.clock,
            events=self._outside.events,
            store=store,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            delays=tables.delays,
            clients=ClientsCore(),
            locks=self._lock_file.locks,
            ha_status=self._ha_status,
            saves=self._saver,
            tables_by_name=self._access.paged(
                {OFFSETS: OffsetPages(tables.offsets), QUEUE_ENDS: QueuePages(store), SINKS: SinkPages(store)}
            ),
            counts=self.counts,
            when_announced=self._when_announced,
            deletions=self._deletions,
            make_slices=slices.make,
            locks_saved=self._lock_saver.after,
        )

    @property
    def _client_address(self) -> str:
        return f"{self.settings.client_host}:{self.address[1]}"

    def _member(self) -> Member:
        settings = self.settings
        ha_port = self.ha_address[1] if self.ha_address is not None else settings.listen_ha_port
        return Member(
            settings.cluster,
            settings.name,
            self._client_address,
            self._instance,
            id=self.standing.broker_id,
            ha_address=f"{settings.slave_host}:{ha_port}",
        )

    def _build_requests(self) -> None:
        parts, settings, store = self.parts, self.settings, self.parts.store
        make_room_for_groups(parts)
        host = encode_host(settings.client_host, self.address[1])
        chance = self._outside.random
        keys = UniqueKeys(host[:-4], chance.getrandbits(16), chance.getrandbits(32))  # for messages without an id
        send_checks = SendChecks(
            settings, topics=parts.topics, groups=parts.groups, locks=parts.locks, clock=parts.clock, keys=keys
        )
        self._sends = Sends(
            self.log,
            send_checks=send_checks,
            send_back=SendBack(settings, store, parts.topics, parts.groups),
            sink_checks=SinkChecks(store),
            saves=parts.saves,
            counts=self.counts,
            events=parts.events,
            store_host=host,
            standing=self.standing,
            max_message_bytes=settings.store.max_message_bytes,
            file_bytes=settings.store.commit_log_file_bytes,
            refusal=lambda: store.refusal,
            fresh=parts.topics.fresh,
        )
        self._pulls = Pulls(parts, self.counts)
        self._stack.callback(self._pulls.close)
        self._server_requests = ServerRequests()
        clients = ClientRequests(parts, self._server_requests)
        self._stack.callback(clients.close)
        clients.start()
        self._requests = Requests(
            self._sends,
            pulls=self._pulls,
            clients=clients,
            processors=admin_processors(parts),
            catch_up=self.log.catch_up,
            saves=parts.saves,
            access=self._access,
            clock=parts.clock,
            events=parts.events,
        )
        self._stack.callback(self._requests.close)

    async def _listen(self) -> None:
        self._server = self._ports.make_server(self._requests, self._server_requests)
        self._stack.push_async_callback(self._server.close)
        await self._ports.listen(self._server)

    def _register(self) -> None:
        settings, outside = self.settings, self._outside
        self._registrar = Registrar(
            self._client,
            events=outside.events,
            member=self._member(),
            name_servers=settings.name_servers,
            table=lambda: permitted(self.parts.topics.table(), settings.perm),
            masters_changed=self._masters_changed,
            timeout_s=settings.register_timeout_ms / 1000,
        )
        self._stack.push_async_callback(self._registrar.close)
        self._registrar.start()
        watch(self._registrar.tasks, self._fail)

    async def _listen_http(self) -> None:
        name, store = self.settings.name, self.parts.store
        view = BrokerReadings(
            counts=self.counts,
            log_range=lambda: (store.first, store.flushed, store.end),
            dispatched=lambda: store.reput_offset,
            writeable=self._is_writeable,
            disk_used_percent=lambda: store.disk_used_percent,
            connections=lambda: self._server.connections,
            held_pulls=lambda: self._pulls.held_count,
            locks=self.parts.locks,
            malformed=lambda: self._server.malformed,
            sinks=lambda: (store.sinks.partition_count, store.sinks.refused_count),
            memory=self._server.memory,
            slaves=self.log.lags,
            metadata_age_s=self._metadata_age_s,
            has_rival=lambda: self._rival() is not None,
            names=lambda: {"broker": name, "id": str(self.standing.broker_id), "role": self.standing.role.value},
        )
        shown = registry(view, DashboardCollector(self.parts, self.counts), self._access.collector)
        listener = await self._ports.listen_http(HealthPages(shown, self._state))
        self._stack.push_async_callback(listener.close)
        self.http_address = listener.address

    def _state(self) -> dict[str, object]:
        settings = self.settings
        return {
            "healthy": not self.failure.done(),
            "broker": settings.name,
            "id": self.standing.broker_id,
            "role": self.standing.role.value,
            "writeable": self._is_writeable(),
        }

    def _is_writeable(self) -> bool:
        return not self.standing.is_slave and self.parts.store.writeable

    def _ha_status(self) -> HaStatus:
        status = self.log.ha_status(self._metadata_age_s(), self.sync.status.why)
        return structs.replace(status, rival=self._rival())

    def _rival(self) -> str | None:
        return self._registrar.rival if self._registrar is not None else None

    def _metadata_age_s(self) -> float | None:
        """Returns the age of the copy of the master's tables; None if there is no copy, or none is needed."""
        if not self.sync.status.synced_ms:
            return None
        return max(0.0, (self._outside.clock.wall_ms() - self.sync.status.synced_ms) / 1000)

    # What the parts tell

    def _settled(self, settles: list[Settle]) -> None:
        self._sends.settled(settles)

    def _awaited(self) -> bool:
        return self._pulls.held_count > 0

    def _arrived(self, arrivals: list[Arrival]) -> None:
        self._pulls.arrived(arrivals)
        if self.standing.is_slave:
            self.sync.arrived([arrival.topic for arrival in arrivals])

    def _rebuilt(self, arrivals: list[Arrival]) -> None:
        self._pulls.rebuilt(arrivals)

    def _following(self) -> None:
        self.sync.followed()

    def _topics_changed(self) -> None:
        if self._registrar is not None:
            self._registrar.changed()
            self._pulls.topics_changed()

    def _when_announced(self, done: Callable[[], None]) -> None:
        if self._registrar is None:
            done()
        else:
            self._registrar.when_announced(done)

    def _connection_lost(self, address: str) -> None:
        if self._registrar is not None:
            self._registrar.connection_lost(address)

    def _masters_changed(self, masters: Masters) -> None:
        """Name servers named another master, or another address of it."""
        self.log.follow(masters.ha_address)
        self.sync.master = masters.address

    def _fail(self, error: Exception) -> None:
        """The disk or a background task failed: reads go on until the process stops, but nothing more is stored."""
        if not self.failure.done():
            self._outside.events.emit("broker cannot go on", reason=str(error))
            self.failure.set_result(error)
