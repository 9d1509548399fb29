"""One simulated life of a master and its slaves: sends, deaths, power loss, bad links, strangers; checked all along.

First everything may go wrong, then the faults stop: every slave that can must catch up, and a send must get its answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import REPORT
from tallystick.sim.disk import Crashed
from tallystick.sim.ha_judge import HaJudge
from tallystick.sim.ha_log import FILE_BYTES, SimLog
from tallystick.sim.ha_master import FeedNode, SimMaster
from tallystick.sim.ha_queues import check_dispatch
from tallystick.sim.ha_slave import SimSlave
from tallystick.sim.ha_wire import Weather, Wire
from tallystick.sim.invariants import Violation
from tallystick.sim.series import Outcome
from tallystick.sim.world import World

STORM_S = 60.0
CALM_S = 120.0
MAX_STEPS = 100_000


@dataclass(frozen=True)
class Scenario:
    """``original``: the master does not know our extension: nothing compares the logs, so nothing may part them."""

    slaves: int
    settings: HaSettings
    sync_flush: bool
    slave_syncs: tuple[bool, ...]
    weather: Weather
    original: bool
    puts: int
    deaths: float  # expected number for each node
    power_loss: float  # the part of them that takes what was not synced
    strange: bool  # the first slave comes with a log of its own
    strangers: int  # connections that are no slave's
    retention: bool
    full_disks: int
    failing_disks: int

    @classmethod
    def draw(cls, rng: random.Random) -> Scenario:
        slaves = rng.choice((1, 1, 2, 2, 3))
        original = rng.random() < 0.2
        settings = HaSettings(
            in_sync_replicas=rng.randint(1, slaves + 1), batch_bytes=rng.choice((100, 300, 1000)),
            max_gap_bytes=rng.choice((4000, 1 << 20)), copy_whole_log=rng.random() < 0.3,
            slave_timeout_ms=rng.choice((500, 5000)), sync_flush_timeout_ms=rng.choice((20, 5000)),
        )  # fmt: skip
        return cls(
            slaves=slaves,
            settings=settings,
            sync_flush=rng.random() < 0.5,
            slave_syncs=tuple(rng.random() < 0.5 for _ in range(slaves)),
            weather=Weather(
                slow=rng.choice((0.0, 0.05, 0.3)), cut=rng.choice((0.0, 0.01, 0.1)), vanish=rng.choice((0.0, 0.3))
            ),
            original=original,
            puts=rng.choice((3, 10, 25)),
            deaths=rng.choice((0.0, 0.5, 2.0)),
            power_loss=rng.choice((0.0, 0.5, 1.0)),
            strange=not original and rng.random() < 0.2,
            strangers=rng.choice((0, 0, 2)),
            retention=rng.random() < 0.3,
            full_disks=rng.choice((0, 0, 2)),
            failing_disks=rng.choice((0, 0, 0, 1)),
        )


class Stranger:
    """A connection to the HA port that is no slave's."""

    def __init__(self, master: SimMaster, weather: Weather) -> None:
        feeding = FeedNode(master)
        self._wire = Wire(master.world, lambda: weather, feeding, self)
        feeding.attach(self._wire, f"stranger/{master.world.steps}")
        rng, end = master.world.random, master.log.end
        words = [
            [rng.randbytes(rng.randint(1, 40))],
            [REPORT.pack(end + rng.randint(1, 2000))],
            [REPORT.pack(max(end, 1)), REPORT.pack(end + rng.choice((1 << 20, 1 << 62)))],
            [REPORT.pack(-rng.randint(1, 5)), REPORT.pack(-2), rng.randbytes(8)],
        ]
        for number, word in enumerate(rng.choice(words)):
            master.world.after(number * 0.5, self._wire.to_master.send, word)

    def read(self, data: bytes) -> None:
        """It listens to nothing."""

    def writable(self) -> None:
        """It sent all it had to say."""

    def lost(self) -> None:
        """It does not come back."""


class Life:
    """The nodes, and what happens to them when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scenario = scenario = Scenario.draw(world.random)
        world.note(scenario)
        self.weather = scenario.weather
        self.judge = judge = HaJudge(world)
        self.master = judge.master = SimMaster(
            world, SimLog(world, slave=False, sync_flush=scenario.sync_flush), scenario.settings, judge,
            original=scenario.original, sync_flush=scenario.sync_flush,
        )  # fmt: skip
        if world.chance(0.5):
            self.master.log.put(world.random.randint(1, 30))
            self.master.log.dispatch()
        for number, syncs in enumerate(scenario.slave_syncs):
            log = SimLog(world, slave=True, sync_flush=syncs)
            if scenario.strange and number == 0:
                log.put(world.random.randint(1, 30))
                log.dispatch()
                log.flush()
            settings = replace(scenario.settings, slave_id=f"slave {number}", sync_flush=syncs)
            judge.slaves.append(
                SimSlave(world, settings.slave_id, log, settings, self.master, lambda: self.weather, judge)
            )

    def schedule(self) -> None:
        """All of it inside the storm."""
        self.master.log.meanwhile = self.master.send_meanwhile
        world, rng, scenario = self.world, self.world.random, self.scenario
        moment = 0.0
        for _ in range(scenario.puts):
            moment += rng.choice((0.0, 0.01, 1.0, 6.0)) * rng.random()
            world.after(min(moment, STORM_S - 1), self._put)
        for slave in self.judge.slaves:
            for _ in range(self._deaths()):
                world.after(rng.random() * STORM_S, self._kill, slave)
        for _ in range(self._deaths()):
            world.after(rng.random() * STORM_S, self._kill, self.master)
        for _ in range(scenario.strangers):
            world.after(rng.random() * STORM_S, self._stranger)
        for _ in range(2 if scenario.retention else 0):
            world.after(rng.random() * STORM_S, self._retain, rng.choice(self.nodes))
        for _ in range(scenario.full_disks):
            world.after(rng.random() * STORM_S, self._fill_disk, rng.choice(self.nodes))
        for _ in range(scenario.failing_disks):
            world.after(rng.random() * STORM_S, rng.choice(self.nodes).log.fail)

    @property
    def nodes(self) -> list[SimMaster | SimSlave]:
        return [self.master, *self.judge.slaves]

    def run(self, until: float) -> bool:
        """Let things happen; False when something spins. Who crashed in the middle of something comes back later."""
        while True:
            try:
                return self.world.run(until, MAX_STEPS)
            except Crashed:
                for node in self.nodes:
                    if node.log.disk.stopped:
                        self._die(node)

    def calm_down(self) -> None:
        self.weather = replace(self.weather, calm=True)
        self.master.log.meanwhile = self.master.log.dispatch
        for node in self.nodes:
            node.log.heal()
            node.log.disk.crash_at = None
        if not self.master.up:
            self.master.start()
        for slave in self.judge.slaves:
            if not slave.up:
                slave.start()
        # A slave that has nothing yet counts as far behind until it is sent something (H10).
        self.world.after(CALM_S / 4, self._put)
        self.world.after(CALM_S / 2, self._last_put)

    def _deaths(self) -> int:
        return sum(self.world.chance(self.scenario.deaths / 4) for _ in range(4))

    def _put(self) -> None:
        scenario, world = self.scenario, self.world
        flush = scenario.sync_flush and world.chance(0.7)
        self.master.put(world.random.randint(1, 4), flush=flush, replicas=world.chance(0.7))

    def _last_put(self) -> None:
        able = sum(map(self.judge.compatible, self.judge.slaves))
        before = self.judge.promised
        self.master.put(1, flush=False, replicas=True)
        if able >= self.scenario.settings.slaves_needed:
            self.world.after(1.0, self._expect_more_promises, before)

    def _expect_more_promises(self, before: int) -> None:
        if self.judge.promised <= before:
            raise Violation("H9: enough slaves follow, and a send was not confirmed")

    def _loses_power(self) -> bool:
        return self.world.chance(self.scenario.power_loss)

    def _kill(self, node: SimMaster | SimSlave) -> None:
        """At once, or in the middle of what it does next with its disk."""
        if node.up and self.world.chance(0.5):
            self._die(node)
        elif node.up:
            node.log.disk.crash_at = node.log.disk.operations + self.world.random.randint(1, 12)

    def _die(self, node: SimMaster | SimSlave) -> None:
        # Nothing would notice the loss behind an original's back.
        node.die(power_loss=self._loses_power() and not (node is self.master and self.scenario.original))
        check_dispatch(node.log)
        if node is self.master:
            self.judge.master_died()
        self.world.after(self.world.random.random() * 20.0, self._start, node)

    def _start(self, node: SimMaster | SimSlave) -> None:
        if not node.up:
            node.start()

    def _stranger(self) -> None:
        if self.master.up:
            Stranger(self.master, self.weather)

    def _retain(self, node: SimMaster | SimSlave) -> None:
        if node.up:
            node.log.retain()

    def _fill_disk(self, node: SimMaster | SimSlave) -> None:
        rng = self.world.random
        node.log.fill(rng.randint(0, FILE_BYTES))
        self.world.after(rng.random() * 20.0, node.log.heal)


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    world = World(seed, keep_trace=keep_trace)
    violation, life = None, None
    try:
        life = Life(world)
        life.schedule()
        if not life.run(STORM_S):
            raise Violation("H6: something spins in the storm")
        life.calm_down()
        if not life.run(STORM_S + CALM_S):
            raise Violation("H6: something spins in the calm")
        life.judge.at_the_end()
        for node in life.nodes:
            check_dispatch(node.log)
    except Violation as found:
        violation = str(found)
    except AssertionError as broken:  # an invariant inside a core
        violation = f"core: {broken or type(broken).__name__}"
    promised = life.judge.promised if life is not None else 0
    return Outcome(seed, violation, promised, world.fingerprint, tuple(world.trace or ()))
