"""One simulated life of brokers: a name server, a master, its slaves and whole clients on virtual time.

Nothing here is a model of the code: the shells that run are those of production, with a loop, a network, disks and
workers that are late, cut, full, or without power. First everything may go wrong (safety), then the faults end: all
that was sent must be delivered and copied (B9). At last every broker loses power at once, and what was promised must
be there.
"""

from __future__ import annotations

import asyncio
import gc
import random

from tallystick.sim.brokers_chaos import Chaos
from tallystick.sim.brokers_clients import Member, Sender
from tallystick.sim.brokers_hosts import BrokerHost, ClientHost, NameServerHost, World
from tallystick.sim.brokers_judge import Judge, Reader
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.cores import Outcome
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.loop import Stuck, VirtualLoop
from tallystick.sim.virtual.network import CALM, Fabric
from tallystick.sim.virtual.trace import Trace

CALM_S = 300.0  # in which all must come to its end
LOOK_S = 0.25  # between two looks of the judge
MAX_TURNS = 100_000


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = BrokersPlan.draw(rng)
    loop = VirtualLoop(max_seconds=plan.storm_s + 2 * CALM_S, max_turns=MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = Judge(trace, plan, loop.time)
    violation = None
    gc.disable()  # when it would close what nobody holds, no seed decides
    try:
        loop.run_until_complete(Life(rng, plan, loop, trace, judge).live())
    except Violation as found:
        violation = str(found)
    except Stuck as stuck:
        violation = f"B9: {stuck}"
    finally:
        violation = judge.violation or violation or next((f"B9: {error}" for error in loop.errors), None)
        trace.end()  # what comes now is only the clearing away
        loop.abandon()
        gc.enable()
    return Outcome(seed, violation, judge.promised, trace.fingerprint, tuple(trace.lines or ()))


class Life:
    """One run; ``live`` it once."""

    def __init__(self, rng: random.Random, plan: BrokersPlan, loop: VirtualLoop, trace: Trace, judge: Judge) -> None:
        self._plan, self._random, self._loop, self._trace, self._judge = plan, rng, loop, trace, judge
        self._clients: list[ClientHost] = []
        self._sending: list[asyncio.Task[None]] = []
        self._over = False

    async def live(self) -> None:
        plan = self._plan
        fabric = Fabric(self._random, self._trace)
        self._world = World(self._loop, self._random, self._trace, fabric, self._judge, plan)
        self._names = NameServerHost(self._world)
        self._brokers = [BrokerHost(self._world, number) for number in range(1 + len(plan.slave_syncs))]
        self._judge.nodes = self._brokers
        for host in (self._names, *self._brokers):
            host.boot()
        fabric.faults = plan.links
        watching = asyncio.create_task(self._watch())
        await self._storm()
        fabric.faults = CALM
        await self._calm()
        await self._check()
        self._over = True
        await watching

    async def _watch(self) -> None:
        while not self._over:
            self._judge.look()
            await asyncio.sleep(LOOK_S)

    def _client(self, name: str) -> ClientHost:
        self._clients.append(ClientHost(self._world, len(self._clients), name))
        return self._clients[-1]

    async def _storm(self) -> None:
        plan, chaos = self._plan, Chaos(self._world, self._names, self._brokers, self._clients)
        if plan.dark_at_ack is not None:
            self._judge.alarm = plan.dark_at_ack, chaos.darken
        topics = tuple(dict.fromkeys(producer.topic for producer in plan.producers))
        self._senders = [
            Sender(number, producer, self._judge, self._world.chance())
            for number, producer in enumerate(plan.producers)
        ]
        self._sending = [self._client(sender.name).run(sender.produce) for sender in self._senders]
        self._reading = [asyncio.create_task(self._read(f"g{number}", topics)) for number in range(plan.groups)]
        strikes = [asyncio.create_task(chaos.strike(at, what)) for at, what in plan.chaos]
        await asyncio.sleep(plan.storm_s)
        await asyncio.gather(*strikes)
        self._judge.alarm = None
        chaos.end()

    async def _read(self, group: str, topics: tuple[str, ...]) -> None:
        """One member after another: some leave in order, some are killed."""
        rng = self._world.chance()
        self._judge.readers[group] = Reader(topics)
        while not self._over:
            host = self._client(group)
            member = Member(group, topics, self._judge, rng.choice((5, 30, 1 << 30)))
            reading = host.run(member.consume)
            if rng.random() < 0.3 and not self._senders[0].concludes.is_set():
                await asyncio.sleep(rng.random() * self._plan.storm_s)
                host.kill()
            else:
                await asyncio.wait([reading])
                error = None if reading.cancelled() else reading.exception()
                if error is not None:
                    raise error

    async def _calm(self) -> None:
        for sender in self._senders:
            sender.concludes.set()
        for task in self._sending:
            await asyncio.wait_for(task, CALM_S)
        await self._settled()

    async def _settled(self) -> None:
        ends_at = self._loop.time() + CALM_S
        while (why := self._judge.unsettled()) is not None:
            if self._loop.time() > ends_at:
                self._judge.fail("B9", why)
            await asyncio.sleep(LOOK_S)
        self._judge.at_the_end()

    async def _check(self) -> None:
        """All brokers lose power; then everything is there."""
        for host in self._brokers:
            host.lose_power()
            host.boot()
        await self._settled()
