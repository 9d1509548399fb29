"""A slave in the simulator: the production core, and the simulator's own shell around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tallystick.errors import StorageError
from tallystick.rocketmq.ha import follow
from tallystick.rocketmq.ha.follow import Follow, Stage
from tallystick.rocketmq.ha.log import place_of
from tallystick.rocketmq.ha.proof import spans_of
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.sim.ha_log import SimLog
from tallystick.sim.ha_master import FeedNode, SimMaster
from tallystick.sim.ha_upkeep import Upkeep
from tallystick.sim.ha_wire import SimAlarm, Weather, Wire
from tallystick.sim.world import World


class CopyJudge(Protocol):
    """Who checks what a slave copies."""

    def copied(self, slave: SimSlave, offset: int, size: int) -> None: ...

    def follows(self, slave: SimSlave) -> None: ...


class SimSlave:
    """``flushed`` reports when ``settings.sync_flush``; a death closes its connection or lets it go silent."""

    def __init__(
        self, world: World, name: str, log: SimLog, settings: HaSettings, master: SimMaster,
        weather: Callable[[], Weather], judge: CopyJudge,
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
        self.core = Follow(slave.settings, place_of(slave.log), spans_of(slave.log), self._world.now)
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
        self._do(self.core.flushed(place_of(self._slave.log), self._world.now))

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
                case follow.Close(reason, retry_s, refused, _):
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
        return self.core.appended(place_of(slave.log), self._world.now)
