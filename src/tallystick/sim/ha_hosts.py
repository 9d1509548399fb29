"""The processes of simulated replication: a master and its slaves, each a running log with its store on its host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tallystick.errors import StorageError
from tallystick.rocketmq.broker.log import BrokerLog, Listeners
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.ha.acks import Settle, Ticket
from tallystick.runtime.outside import Outside
from tallystick.sim.ha_disk import RecordDisk
from tallystick.sim.ha_judge import HaJudge, WaitingSender
from tallystick.sim.ha_log import SETTINGS, SimLog
from tallystick.sim.ha_original import OriginalNetwork
from tallystick.sim.ha_plan import HaPlan
from tallystick.sim.ha_queues import check_dispatch
from tallystick.sim.hosts import Host, JudgedWorld
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.process import Process

PORT = 10912
MASTER = "10.0.0.1"
AWAY_S = 4.0  # at most, until a node that died is started again
MEANWHILE = 0.5  # of those sends that happen while a thread syncs, and wait


HaWorld = JudgedWorld[HaJudge, HaPlan]


class HaHost(Host[HaWorld]):
    """A machine with a master (number 0) or a slave. Its log is read back and compared once its process is dead."""

    disk_type = RecordDisk
    disk: RecordDisk

    def __init__(self, world: HaWorld, number: int) -> None:
        super().__init__(world, f"s{number}" if number else "master", f"10.0.0.{number + 1}")
        self._number, self._random = number, world.chance()
        self.sync_flush = world.plan.slave_syncs[number - 1] if number else world.plan.sync_flush
        self.log = self._new_log()
        self.senders: dict[Ticket, WaitingSender] = {}
        self.running: BrokerLog | None = None  # that answers
        self._is_read_back = True

    def new_disk(self) -> None:
        super().new_disk()
        self.disk.on_stop = lambda: self._die(power_loss=self._random.random() < 0.5)

    def _new_log(self) -> SimLog:
        """Begin a log on the disk, which is empty."""
        is_slave = self._number > 0
        log = SimLog(self.id, self.disk, self._world.clock, self._random, slave=is_slave, sync_flush=self.sync_flush)
        log.on_copied = lambda offset, size: self._world.judge.copied(self, offset, size)
        return log

    @property
    def answers(self) -> bool:
        return self.running is not None

    @property
    def follows(self) -> bool:
        """Returns whether a slave is fed by its master."""
        return self.running is not None and self.running.follow_status().link > 0

    @property
    def why(self) -> str:
        """Returns why a slave does not follow."""
        return self.running.follow_status().why if self.running is not None else "it does not run"

    # What it is.

    def boot(self) -> None:
        if self._is_read_back:
            super().boot()

    async def _run(self, process: Process) -> None:
        listeners = Listeners(
            settled=self._settled,
            awaited=lambda: self._random.random() < 0.5,
            arrived=_ignore,
            rebuilt=_ignore,
            following=self._following,
            failed=lambda error: self._on_failure(process, error),
        )
        self.senders = {}
        settings = self._settings()
        standing = Standing(settings.role, settings.broker_id)
        log = self.running = BrokerLog(
            self._sees(process),
            store=self.log.store,
            settings=settings,
            standing=standing,
            listeners=listeners,
            instance=process.name,
        )
        self.log.meanwhile = self._send_meanwhile if self._number == 0 else self.log.dispatch
        await log.take_role(slave=self.log.store.slave)
        log.start()
        log.follow(f"{MASTER}:{PORT}")

    def _settings(self) -> BrokerSettings:
        plan = self._world.plan
        master = Role.SYNC_MASTER if plan.sync_replicas else Role.ASYNC_MASTER
        return BrokerSettings(
            "/store",
            "b",
            broker_id=self._number,
            role=Role.SLAVE if self._number else master,
            host=self.address,
            port=PORT - 1,
            store=replace(SETTINGS, sync_flush=self.sync_flush),
            ha=plan.settings,
        )

    def _sees(self, process: Process) -> Outside:
        outside = self._outside(process)
        is_original = self._world.plan.original and self._number == 0
        return replace(outside, network=OriginalNetwork(outside.network)) if is_original else outside

    async def _stop(self) -> None:
        running, self.running = self.running, None
        assert running is not None, "only one that answers is asked to stop"
        try:
            await running.close()
        except StorageError:
            if not self.log.was_disturbed:
                raise

    # What it does.

    def put(self, count: int, *, waits: bool) -> None:
        """Put a tick's sends at a master; they wait for disk and slaves as the settings say, or for nothing."""
        if self.process is not None:
            self._world.fabric.loop.call_soon(self._put, count, waits, context=self.process.context)

    def _put(self, count: int, waits: bool) -> None:
        log, world = self.running, self._world
        if log is None:
            return
        before = self.log.end
        puts = log.put(self.log.put_requests(count))
        end = self.log.end
        if end == before:
            world.trace.note("put refused", self.log.store.refusal)
            return
        world.trace.note("put", end, waits)
        if waits and log.waits:
            settled = log.wait(puts[0].end, end)
            self.senders[settled.ticket] = WaitingSender(end, world.clock.now())
            self._settled(list(settled.settles))

    def _send_meanwhile(self) -> None:
        self._put(1, self._random.random() < MEANWHILE)

    def _settled(self, settles: list[Settle]) -> None:
        for settle in settles:
            self._world.judge.settled(self.senders.pop(settle.ticket), settle.status)

    def _following(self) -> None:
        assert self.running is not None, "one that does not run is fed"
        proven = self.running.follow_status().proven
        self._world.trace.note(self.id, f"follows proven={proven}")
        if proven or self._world.plan.original:  # else it says so in vain: a master of ours sends it nothing
            self._world.judge.follows(self)

    # How it dies.

    def kill(self) -> None:
        self._die(power_loss=False)

    def lose_power(self) -> None:
        self._die(power_loss=True)

    def lose_disk(self) -> None:
        """Let the machine die, and start again with an empty disk."""
        process, world = self.process, self._world
        if process is None:
            return
        world.trace.note(self.id, "loses its disk")
        world.judge.loses_disk(self)
        self._forget()
        world.fabric.forget_all(self.address)
        world.fabric.power_off(process)
        self._is_read_back = False
        world.fabric.loop.call_soon(self._come_back_empty, context=world.fabric.context)

    def _come_back_empty(self) -> None:
        self.new_disk()
        self.log = self._new_log()
        self._is_read_back = True
        self._world.fabric.loop.call_later(
            self._random.random() * AWAY_S, self.boot, context=self._world.fabric.context
        )

    def _on_failure(self, process: Process, error: Exception) -> None:
        """Check that a log fails only by its disk."""
        self._world.trace.note(process.name, "ends", repr(error))
        if isinstance(error, Violation):
            self._world.judge.report(error)
        elif not isinstance(error, StorageError) or not self.log.was_disturbed:
            self._world.judge.fail("H6", f"{self.id} ended by itself: {error!r}")
        self._die(power_loss=self._random.random() < 0.5)

    def _die(self, *, power_loss: bool) -> None:
        """Let the process die. An original as master keeps its power: nobody would notice what it lost."""
        process, world = self.process, self._world
        if process is None:  # the log is being read back
            return
        power_loss = power_loss and not (world.plan.original and self._number == 0)
        world.trace.note(self.id, "dies", "power" if power_loss else "kill")
        self._forget()
        if power_loss:
            world.fabric.forget_all(self.address)  # and so what it sent last never arrives
            world.fabric.power_off(process)
        else:
            world.fabric.kill(process)
        self._is_read_back = False
        world.fabric.loop.call_soon(self._read_back, power_loss, context=world.fabric.context)

    def _read_back(self, power_loss: bool) -> None:
        """Read the log back, in a later turn: the dead process may still be on the stack."""
        world = self._world
        try:
            self.log.restart(power_loss=power_loss)
            check_dispatch(self.log)
        except Violation as violation:
            world.judge.report(violation)
        if self._number == 0:
            world.judge.master_died()
        self._is_read_back = True
        world.fabric.loop.call_later(self._random.random() * AWAY_S, self.boot, context=world.fabric.context)

    def _forget(self) -> None:
        super()._forget()
        self.running = None


def _ignore(arrivals: Sequence[object]) -> None:
    """Does nothing: no consumer waits here, and judges read the queues."""
