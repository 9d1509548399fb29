"""A master in the simulator: the production cores, and the simulator's own shells around them."""

from __future__ import annotations

from typing import Protocol

from tallystick.rocketmq.ha import feed
from tallystick.rocketmq.ha.acks import AcksCore, Settle, Ticket
from tallystick.rocketmq.ha.feed import Feed
from tallystick.rocketmq.ha.log import range_of
from tallystick.rocketmq.ha.proof import objection
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import ASK, HEAD, REPORT, MasterHello
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.sim.ha_log import FILE_BYTES, SimLog
from tallystick.sim.ha_upkeep import Upkeep
from tallystick.sim.ha_wire import SimAlarm, Wire
from tallystick.sim.world import World

PIECE_BYTES = 1000


class SendJudge(Protocol):
    """Who checks what a sender is promised."""

    def settled(self, end: int, flush: bool, replicas: bool, since: float, status: PutStatus) -> None: ...


class SimMaster:
    """``original``: it does not know the extension, and like an original never answers the question."""

    def __init__(
        self, world: World, log: SimLog, settings: HaSettings, judge: SendJudge, *, original: bool, sync_flush: bool
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
        self.waiting: dict[Ticket, tuple[int, bool, bool, float]] = {}
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
        self.waiting[settled.ticket] = (end, flush, replicas, self.world.now)
        self.world.note("put", end, flush, replicas)
        self.settle(list(settled.settles))
        for link in tuple(self.links):
            link.pump()
        self.log.dispatch()
        if self.sync_flush or self.world.chance(0.3):
            self.sync()

    def send_meanwhile(self) -> None:
        """While a thread syncs."""
        self.put(1, flush=self.sync_flush, replicas=self.world.chance(0.5))

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


class FeedNode:
    """The master's side of a link, as ``SlaveLink`` is one."""

    def __init__(self, master: SimMaster) -> None:
        self.master, self.world = master, master.world
        self.name = ""
        self.closed = False
        self._question = b"" if master.original else None  # as far as it came, of what an original passes over
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
        if self._question is not None:
            data = self._pass_over(self._question + data)
        self._do(self._feed.received(data, range_of(self.master.log), self.world.now))

    def _pass_over(self, data: bytes) -> bytes:
        """What an original makes of the first bytes it is sent: a negative first report is as good as none."""
        self._question = None if len(data) >= REPORT.size else data
        if self._question is not None:
            return b""
        return data.removeprefix(REPORT.pack(ASK))

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
