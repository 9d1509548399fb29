"""One simulated life of brokers: a name server, a master, its slaves and whole clients on virtual time.

Nothing here is a model of the code: the shells that run are those of production, with a loop, a network, disks and
workers that are late, cut, full, or without power. First everything may go wrong (safety), then the faults end: all
that was sent must be delivered and copied (B9). At last every broker loses power at once, and what was promised must
be there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tallystick.rocketmq.broker.role import Role
from tallystick.sim.brokers_chaos import BrokersChaos
from tallystick.sim.brokers_clients import Sender, SimGroup
from tallystick.sim.brokers_expectation import Reader
from tallystick.sim.brokers_hosts import PORT, BrokerClientHost, BrokerHost, BrokersWorld, NameServerHost
from tallystick.sim.brokers_judge import BrokersJudge
from tallystick.sim.brokers_operator import SimOperator
from tallystick.sim.brokers_plan import BrokersPlan, ProducerPlan, TablesPlan
from tallystick.sim.brokers_sinks import SimSink
from tallystick.sim.brokers_tables_user import TablesUser
from tallystick.sim.budgets import TASKS, TURN, Budgets, of_loop
from tallystick.sim.failing_disk import with_failing_disks
from tallystick.sim.life import live
from tallystick.sim.series import Outcome
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.network import CALM, Fabric
from tallystick.sim.virtual.trace import Trace

CALM_S = 300.0  # in which all must come to its end
LOOK_S = 0.25  # between two looks of the judge
SOON_S = 6.0  # a round of copying that runs, the distance to the next one, and that one
LATE = "Late"
AWAY_S = 6.0  # that a group reads at slaves alone, before it is set back
MAX_TURNS = 200_000
BUDGETS = {TASKS: 400, TURN: 150}


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = BrokersPlan.draw(rng)
    plan = replace(plan, chaos=with_failing_disks(seed, plan.chaos, plan.storm_s))
    return run_plan(seed, rng, plan, keep_trace=keep_trace)


def run_plan(seed: int, rng: random.Random, plan: BrokersPlan, *, keep_trace: bool) -> Outcome:
    """One schedule of this plan; ``rng`` decides all else."""
    loop = VirtualLoop(max_seconds=plan.storm_s + 2 * CALM_S, max_turns=MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = BrokersJudge(trace, plan, loop.time)
    return live(seed, BrokersLife(rng, plan, loop, trace, judge).live(), loop, trace, judge, "B9")


class BrokersLife:
    """One life of brokers and their clients; ``live`` it once."""

    def __init__(
        self, rng: random.Random, plan: BrokersPlan, loop: VirtualLoop, trace: Trace, judge: BrokersJudge
    ) -> None:
        self._plan, self._random, self._loop, self._trace, self._judge = plan, rng, loop, trace, judge
        self._clients: list[BrokerClientHost] = []
        self._sending: list[asyncio.Task[None]] = []
        self._groups: list[SimGroup] = []
        self._over = False

    async def live(self) -> None:
        plan = self._plan
        fabric = Fabric(self._random, self._trace)
        self._world = BrokersWorld(
            self._loop, rng=self._random, trace=self._trace, fabric=fabric, judge=self._judge, plan=plan
        )
        self._names = NameServerHost(self._world)
        self._brokers = [BrokerHost(self._world, number) for number in range(1 + len(plan.slave_syncs))]
        self._judge.nodes = self._brokers
        self._names.boot()
        for host in self._brokers:
            host.boot()
        fabric.faults = plan.links
        watching = asyncio.create_task(self._watch())
        await self._storm()
        fabric.faults = CALM
        await self._turn()
        await self._calm()
        await self._check()
        await self._begin_anew()
        self._over = True
        await watching
        for reading in self._reading:  # it goes on for ever, or failed
            if reading.done():
                await reading

    async def _watch(self) -> None:
        budgets = Budgets(BUDGETS, lambda: of_loop(self._loop), "B10", self._judge.fail)
        while not self._over:
            self._judge.look()
            budgets.look()
            await asyncio.sleep(LOOK_S)

    def _client(self, name: str) -> BrokerClientHost:
        self._clients.append(BrokerClientHost(self._world, len(self._clients), name))
        return self._clients[-1]

    async def _storm(self) -> None:
        plan, chaos = self._plan, BrokersChaos(self._world, self._names, self._brokers, self._clients)
        if plan.dark_at_ack is not None:
            self._judge.alarm = plan.dark_at_ack, chaos.darken
        topics = tuple(dict.fromkeys(producer.topic for producer in plan.producers))
        self._senders = [
            Sender(number, producer, self._judge, self._world.chance())
            for number, producer in enumerate(plan.producers)
        ]
        self._sending = [self._client(sender.name).run(sender.produce) for sender in self._senders]
        self._sinks = [
            SimSink(number, sink, self._judge.sinks, self._world.chance(), self._client)
            for number, sink in enumerate(plan.sinks)
        ]
        self._sinking = [asyncio.create_task(sink.run()) for sink in self._sinks]
        for number, plan_of_group in enumerate(plan.groups):
            group = SimGroup(
                f"g{number}",
                plan=plan_of_group,
                topics=topics,
                judge=self._judge,
                rng=self._world.chance(),
                longest_s=plan.storm_s,
            )
            self._judge.expectation.readers[group.name] = Reader(topics)
            self._groups.append(group)
        self._reading = [
            asyncio.create_task(group.run(place, self._client))
            for group in self._groups
            for place in range(group.plan.members)
        ]
        strikes = [asyncio.create_task(chaos.strike(at, what)) for at, what in plan.chaos]
        deletions = [asyncio.create_task(self._delete(at, topic)) for at, topic in plan.deletions]
        using = [
            asyncio.create_task(self._use_tables(tables_plan, topics))
            for tables_plan in (plan.tables,)
            if tables_plan is not None
        ]
        await asyncio.sleep(plan.storm_s)
        await asyncio.gather(*strikes, *deletions, *using)
        self._judge.alarm = None
        chaos.end()

    def _operator(self) -> SimOperator:
        return SimOperator(self._world, self._client("operator"), self._judge, f"{self._brokers[0].address}:{PORT}")

    async def _delete(self, at: float, topic: str) -> None:
        await asyncio.sleep(at)
        await self._operator().delete(topic)

    async def _use_tables(self, plan: TablesPlan, topics: Sequence[str]) -> None:
        world, judge = self._world, self._judge
        user = TablesUser(
            plan, brokers=self._brokers, topics=topics, queues=self._plan.queues, judge=judge, rng=world.chance()
        )
        await self._operator().run(user.use)

    # Once the faults have ended.

    async def _turn(self) -> None:
        for group in self._groups:
            group.is_calm = True
        match self._plan.turn:
            case "set back":
                await self._set_back(self._groups[0])
            case "promote":
                await self._promote()
            case "empty master":
                await self._empty_master()

    async def _set_back(self, group: SimGroup) -> None:
        """Set a group back whose members have ended; a slave may have commits of theirs that its master lacks yet."""
        group.leave()
        master = self._brokers[0]
        if len(self._brokers) > 1 and self._random.random() < 0.7:
            master.kill()
            group.come_back()
            await asyncio.sleep(self._random.random() * AWAY_S)
            group.leave()
            master.boot()
        await asyncio.sleep(1.0 + self._random.random() * self._random.choice((0.5, 12.0)))
        await self._operator().set_back(group.name, group.topics)
        await self._until(lambda: self._judge.settling.unheard(group.name))
        group.come_back()

    async def _promote(self) -> None:
        """End the master for good, and make a slave the master."""
        await self._await_brokers()
        ready = [host for host in self._brokers[1:] if self._judge.may_promote(host)]
        if not ready:
            return
        new_master, master = self._random.choice(ready), self._brokers[0]
        self._judge.promotes(new_master)
        self._brokers = [new_master, *(host for host in self._brokers[1:] if host is not new_master)]
        self._judge.nodes = self._brokers
        master.retired = True
        if self._random.random() < 0.5:
            master.kill()
        else:
            master.lose_power()
        if self._random.random() < 0.5:
            new_master.take_over()
            return
        new_master.kill()
        new_master.promote()
        new_master.boot()

    async def _empty_master(self) -> None:
        await self._await_brokers()
        self._judge.emptied()
        self._brokers[0].kill()
        self._brokers[0].new_disk()
        self._brokers[0].boot()

    async def _await_brokers(self) -> None:
        while not all(host.answers for host in self._brokers):  # noqa: ASYNC110  # a host has nobody to tell
            await asyncio.sleep(LOOK_S)

    async def _calm(self) -> None:
        for sender in self._senders:
            sender.concludes.set()
        await asyncio.wait(self._sending, timeout=CALM_S)
        for task in self._sending:
            if not task.done():
                self._judge.fail("B9", "a producer cannot send, though nothing stands in its way")
            await task
        await self._end_sinks()
        await self._settled()
        if self._plan.tables is not None:
            await self._announce()

    async def _end_sinks(self) -> None:
        """Let sinks send their last batch. A master that waits for slaves may have none that follows it."""
        for sink in self._sinks:
            sink.concludes.set()
        if self._sinking:
            await asyncio.wait(self._sinking, timeout=CALM_S)
        for sink, task in zip(self._sinks, self._sinking, strict=True):
            if task.done():
                await task
                continue
            sink.end()
            task.cancel()
            slaves = [host for host in self._brokers[1:] if self._judge.settling.may_confirm(host)]
            if slaves or self._plan.role is not Role.SYNC_MASTER:
                self._judge.fail("B9", "a sink cannot send, though nothing stands in its way")

    async def _announce(self) -> None:
        """Create a topic whose first message is at the slaves at once."""
        sender = Sender(len(self._senders), ProducerPlan(LATE, 0, 0, 0.0, 0.0, 0.0), self._judge, self._world.chance())
        sender.concludes.set()
        await self._client(sender.name).run(sender.produce)
        await asyncio.sleep(SOON_S)
        self._judge.settling.check_known(LATE)
        await self._settled()

    async def _settled(self) -> None:
        await self._until(self._judge.unsettled)
        self._judge.at_the_end()

    async def _until(self, what_lacks: Callable[[], str | None]) -> None:
        """Wait until nothing is unsettled. Fails after a time."""
        ends_at = self._loop.time() + CALM_S
        while (why := what_lacks()) is not None:
            if self._loop.time() > ends_at:
                self._judge.fail("B9", why)
            await asyncio.sleep(LOOK_S)

    async def _check(self) -> None:
        """Take the power from all brokers, and check that everything is there afterwards."""
        for host in self._brokers:
            host.lose_power()
            host.boot()
        await self._settled()

    async def _begin_anew(self) -> None:
        """Give slaves whose logs do not fit empty directories, as docs/ha.md has it; then they follow."""
        refused_slaves = [host for host in self._brokers[1:] if not self._judge.settling.may_follow(host)]
        for host in refused_slaves:
            self._trace.note("slave begins anew", host.id)
            self._judge.begins_anew(host)
            host.kill()
            host.new_disk()
            host.boot()
        if refused_slaves:
            await self._settled()
