"""A master and its slaves in the simulator: the production cores, and the simulator's own shells around them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tallystick.errors import StorageError
from tallystick.rocketmq.ha import feed, follow
from tallystick.rocketmq.ha.acks import AcksCore, Settle, Ticket
from tallystick.rocketmq.ha.feed import Feed
from tallystick.rocketmq.ha.follow import Follow, Stage
from tallystick.rocketmq.ha.log import range_of
from tallystick.rocketmq.ha.proof import objection, spans_of
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import ASK, HEAD, REPORT, MasterHello
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.sim.ha_log import FILE_BYTES, SimLog
from tallystick.sim.ha_queues import check_dispatch
from tallystick.sim.ha_wire import SimAlarm, Weather, Wire
from tallystick.sim.world import World

PIECE_BYTES = 1000
MAX_UPKEEP_S = 10.0


class Judge(Protocol):
    """Who checks the promises."""

    def settled(self, end: int, flush: bool, replicas: bool, status: PutStatus) -> None: ...

    def copied(self, slave: SimSlave, offset: int, size: int) -> None: ...

    def follows(self, slave: SimSlave) -> None: ...


class SimMaster:
    """``original``: it does not know the extension, and like an original never answers the question."""

    def __init__(
        self, world: World, log: SimLog, settings: HaSettings, judge: Judge, *, original: bool, sync_flush: bool
    ) -> None:
        self.world, self.log, self.settings, self.judge = world, log, settings, judge
        self.original, self.sync_flush = original, sync_flush
        self.up = False
        self.life = 0
        self.links: dict[FeedNode, None] = {}
        self.names: dict[str, FeedNode] = {}
        self.wires: list[Wire] = []  # of this life
        self.start()

    def start(self) -> None:
        self.up = True
        self.life += 1
        self.acks = AcksCore(self.settings, flushed=self.log.flushed)
        self.waiting: dict[Ticket, tuple[int, bool, bool]] = {}
        self._alarm = SimAlarm(self.world, self._tick)
        self._syncing = False
        Upkeep(self)

    def die(self, *, power_loss: bool) -> None:
        """Its connections are reset, or, when the machine lost its power, go silent."""
        self.world.note("master dies", "power" if power_loss else "kill")
        self.up = False
        for link in tuple(self.links):
            link.end(silently=power_loss)
        for wire in self.wires if power_loss else ():  # what a closed link had under way is gone too
            wire.vanish()
        self.wires.clear()
        self.links.clear()
        self.names.clear()
        self.log.restart(power_loss=power_loss)

    def put(self, count: int, *, flush: bool, replicas: bool) -> None:
        """One tick: records appended, and one wait for all of them."""
        if not self.up:
            return
        end = self.log.put(count)
        if end is None:
            self.world.note("put refused", self.log.store.refusal)
            return
        settled = self.acks.appended(end, self.world.now, flush=flush, replicas=replicas)
        self.waiting[settled.ticket] = (end, flush, replicas)
        self.world.note("put", end, flush, replicas)
        self.settle(list(settled.settles))
        for link in tuple(self.links):
            link.pump()
        self.log.dispatch()
        if self.sync_flush or self.world.chance(0.3):
            self.sync()

    def sync(self) -> None:
        """As the thread does it: it takes a time to begin, and to be heard of."""
        if not self._syncing:
            self._syncing = True
            self.world.after(self.world.random.random() * 0.05, self._sync, self.life)

    def _sync(self, life: int) -> None:
        if self.up and life == self.life:
            self.world.after(self.world.random.random() * 0.02, self._synced, life, self.log.flush())

    def _synced(self, life: int, end: int) -> None:
        if self.up and life == self.life:
            self._syncing = False
            self.settle(self.acks.flushed(end, self.world.now))
            self.log.dispatch()
            if self.log.flushed < self.log.end and self.sync_flush:
                self.sync()

    def settle(self, settles: list[Settle]) -> None:
        for settle in settles:
            self.judge.settled(*self.waiting.pop(settle.ticket), settle.status)
        self._alarm.set(self.acks.wake_at())

    def _tick(self) -> None:
        if self.up:
            self.settle(self.acks.tick(self.world.now))


class Upkeep:
    """Of a node's store, in one of its lives: about as often as the thread does it; and a look at queues and index."""

    def __init__(self, node: SimMaster | SimSlave) -> None:
        self._node, self._life = node, node.life
        self._again()

    def _again(self) -> None:
        world = self._node.world
        world.after(world.random.random() * MAX_UPKEEP_S, self._run)

    def _run(self) -> None:
        node = self._node
        if node.up and node.life == self._life:
            node.log.maintain()
            node.log.dispatch()
            if node.world.chance(0.03):
                check_dispatch(node.log)
            self._again()


class FeedNode:
    """The master's side of a link, as ``SlaveLink`` is one."""

    def __init__(self, master: SimMaster) -> None:
        self.master, self.world = master, master.world
        self.name = ""
        self.closed = False
        self._feed = Feed(master.settings, FILE_BYTES, self.world.now)
        self._alarm = SimAlarm(self.world, self._tick)
        self._alarm.set(self._feed.wake_at())
        master.links[self] = None

    def attach(self, wire: Wire, name: str) -> None:
        self._wire, self._peer = wire, name
        self.master.wires.append(wire)

    def read(self, data: bytes) -> None:
        if self.closed:
            return
        if self.master.original and data[: REPORT.size] == REPORT.pack(ASK):
            data = data[REPORT.size :]
        self._do(self._feed.received(data, range_of(self.master.log), self.world.now))

    def writable(self) -> None:
        if not self.closed:
            self.pump()

    def lost(self) -> None:
        self.end(silently=True)

    def end(self, *, silently: bool) -> None:
        if self.closed:
            return
        self.closed = True
        if silently:
            self._wire.vanish()
        else:
            self._wire.close(self._wire.to_slave, self._wire.to_master)
        self.master.links.pop(self, None)
        if self.master.names.get(self.name) is self:
            del self.master.names[self.name]
            self.master.settle(self.master.acks.disconnected(self.name, self.world.now))

    def pump(self) -> None:
        while self._feed.feeding and not self.closed and not self._wire.to_slave.full:
            piece = self.master.log.slice(self._feed.position, PIECE_BYTES)
            if not piece:
                break
            self._wire.to_slave.send(b"".join(self._feed.cut(piece, self.world.now)))

    def _tick(self) -> None:
        if not self.closed:
            log = range_of(self.master.log)
            self._do(self._feed.tick(log, self.world.now, writable=not self._wire.to_slave.full))

    def _do(self, actions: list[feed.Action]) -> None:
        master = self.master
        for action in actions:
            self.world.note("feed", self._peer, action)
            match action:
                case feed.Greet(refused):
                    log = range_of(master.log)
                    hello = MasterHello(log.first, log.end, log.flushed, master.sync_flush, refused)
                    self._wire.to_slave.send(hello.encode())
                case feed.Verify(hello):
                    found = objection(master.log, hello)
                    self._do(self._feed.verified(hello, found, range_of(master.log), self.world.now))
                case feed.Start(end, _, slave_id, _):
                    self._started(slave_id, end)
                case feed.Acked(offset):
                    master.settle(master.acks.reported(self.name, offset, self.world.now))
                case feed.Heartbeat(offset):
                    self._wire.to_slave.send(HEAD.pack(offset, 0))
                case feed.Close():
                    self.end(silently=False)
        self.pump()
        if not self.closed:
            self._alarm.set(self._feed.wake_at())

    def _started(self, slave_id: str | None, end: int) -> None:
        self.name = slave_id or self._peer
        older = self.master.names.get(self.name)
        self.master.names[self.name] = self
        if older is not None:
            older.end(silently=False)
        self.master.settle(self.master.acks.connected(self.name, end, self.world.now))


class SimSlave:
    """``flushed`` reports when ``settings.sync_flush``; a death closes its connection or lets it go silent."""

    def __init__(
        self, world: World, name: str, log: SimLog, settings: HaSettings, master: SimMaster,
        weather: Callable[[], Weather], judge: Judge,
    ) -> None:  # fmt: skip
        self.world, self.name, self.log, self.settings = world, name, log, settings
        self.master, self.weather, self.judge = master, weather, judge
        self.up = False
        self.life = 0
        self.refused: str | None = None
        self.link: FollowNode | None = None
        self.start()

    def start(self) -> None:
        self.up = True
        self.life += 1
        self._syncing = False
        Upkeep(self)
        self.world.after(0.0, self.connect, self.life)

    def die(self, *, power_loss: bool) -> None:
        self.world.note(self.name, "dies", "power" if power_loss else "kill")
        self.up = False
        if self.link is not None:
            self.link.end(silently=power_loss)
        self.log.restart(power_loss=power_loss)

    def connect(self, life: int) -> None:
        if not self.up or life != self.life or self.link is not None:
            return
        if not self.master.up:
            self.retry(self.settings.retry_ms / 1000)
            return
        feeding = FeedNode(self.master)
        self.link = FollowNode(self)
        wire = Wire(self.world, self.weather, feeding, self.link)
        feeding.attach(wire, f"{self.name}/{self.world.steps}")
        self.link.attach(wire)

    def retry(self, after_s: float) -> None:
        self.world.after(after_s, self.connect, self.life)

    def sync(self) -> None:
        if not self._syncing and self.up:
            self._syncing = True
            self.world.after(self.world.random.random() * 0.05, self._sync, self.life)

    def _sync(self, life: int) -> None:
        if self.up and life == self.life:
            self.log.flush()
            self.world.after(self.world.random.random() * 0.02, self._synced, life)

    def _synced(self, life: int) -> None:
        if not self.up or life != self.life:
            return
        self._syncing = False
        if self.link is not None:
            self.link.flushed()
        if self.log.flushed < self.log.end and self.settings.sync_flush:
            self.sync()


class FollowNode:
    """The slave's side of a link, as ``MasterLink`` is one."""

    def __init__(self, slave: SimSlave) -> None:
        self._slave, self._world = slave, slave.world
        self.core = Follow(slave.settings, range_of(slave.log), spans_of(slave.log), self._world.now)
        self._alarm = SimAlarm(self._world, self._tick)
        self.closed = False

    def attach(self, wire: Wire) -> None:
        self._wire = wire
        self._do(self.core.connected(self._world.now))
        if self.core.stage is Stage.SETTLING:
            self._slave.sync()

    def read(self, data: bytes) -> None:
        if not self.closed:
            self._do(self.core.received(memoryview(data), self._world.now))

    def writable(self) -> None:
        """It sends little: nothing waits."""

    def lost(self) -> None:
        if not self.closed:
            self._do([follow.Close("the master closed the link", self._slave.settings.retry_ms / 1000)])

    def flushed(self) -> None:
        self._do(self.core.flushed(range_of(self._slave.log), self._world.now))

    def end(self, *, silently: bool) -> None:
        self.closed = True
        self._slave.link = None
        if silently:
            self._wire.vanish()
        else:
            self._wire.close(self._wire.to_master, self._wire.to_slave)

    def _tick(self) -> None:
        if not self.closed:
            self._do(self.core.tick(self._world.now))

    def _do(self, actions: list[follow.Action]) -> None:
        slave, due = self._slave, deque(actions)
        while due and not self.closed:
            action = due.popleft()
            self._world.note(slave.name, type(action).__name__, slave.log.end)
            match action:
                case follow.Send(data):
                    self._wire.to_master.send(data)
                case follow.Append(offset, parts):
                    due.extend(self._append(offset, b"".join(parts)))
                case follow.Following(proven):
                    slave.refused = None
                    if proven or slave.master.original:  # else it says so in vain: a master of ours sends it nothing
                        slave.judge.follows(slave)
                case follow.Close(reason, retry_s, refused):
                    self._world.note(slave.name, reason)
                    slave.refused = reason if refused else None
                    self.end(silently=False)
                    slave.retry(retry_s)
        if not self.closed:
            self._alarm.set(self.core.wake_at())

    def _append(self, offset: int, data: bytes) -> list[follow.Action]:
        slave = self._slave
        try:
            slave.log.append_raw(offset, data)
        except StorageError as error:
            return [follow.Close(f"cannot append: {error}", slave.settings.retry_ms / 1000)]
        slave.log.dispatch()
        slave.judge.copied(slave, offset, len(data))
        if slave.settings.sync_flush or self._world.chance(0.2):
            slave.sync()
        return self.core.appended(range_of(slave.log), self._world.now)
