"""One simulated life of a master and its slaves: sends, deaths, power loss, bad links, strangers; checked all along.

The shells that run are those of production: ``BrokerLog`` with its HA port or its link to the master, its flusher, its
store. First everything may go wrong, then the faults stop: every slave that can must catch up, and a send must get its
response.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

from tallystick.sim.budgets import Budgets
from tallystick.sim.ha_budgets import BUDGETS, counts
from tallystick.sim.ha_chaos import HaChaos
from tallystick.sim.ha_hosts import HaHost, HaWorld
from tallystick.sim.ha_judge import HaJudge
from tallystick.sim.ha_plan import STORM_S, HaPlan, with_empty_disks
from tallystick.sim.ha_queues import check_dispatch
from tallystick.sim.life import live
from tallystick.sim.series import Outcome
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.network import CALM, Fabric
from tallystick.sim.virtual.trace import Trace

CALM_S = 60.0  # in which all must come to its end
LOOK_S = 0.25  # between two looks of the judge
MAX_TURNS = 30_000


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = HaPlan.draw(rng)
    plan = replace(plan, chaos=with_empty_disks(seed, plan.chaos))
    loop = VirtualLoop(max_seconds=STORM_S + 4 * CALM_S, max_turns=MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = HaJudge(trace, plan, loop.time)
    return live(seed, HaLife(rng, plan, loop, trace, judge).live(), loop, trace, judge, "H6")


class HaLife:
    """One life of a master and its slaves; ``live`` it once."""

    def __init__(self, rng: random.Random, plan: HaPlan, loop: VirtualLoop, trace: Trace, judge: HaJudge) -> None:
        self._random, self._plan, self._loop, self._trace, self._judge = rng, plan, loop, trace, judge

    async def live(self) -> None:
        plan, fabric = self._plan, Fabric(self._random, self._trace, self._plan.links)
        self._world = HaWorld(
            self._loop, rng=self._random, trace=self._trace, fabric=fabric, judge=self._judge, plan=plan
        )
        nodes = self._nodes = [HaHost(self._world, number) for number in range(1 + len(plan.slave_syncs))]
        self._judge.master, self._judge.slaves = nodes[0], nodes[1:]
        if plan.old:
            self._begin_with_messages(nodes[0])
        if plan.strange:
            self._begin_with_messages(nodes[1])
        for node in nodes:
            node.boot()
        budgets = Budgets(BUDGETS, lambda: counts(self._world, self._loop, nodes), "budget", self._judge.fail)
        self._watching = asyncio.create_task(budgets.watch())  # until the end
        await self._storm()
        fabric.faults = CALM
        await self._until(self._judge.unsettled)
        await self._last_send()
        await self._until(self._judge.unsettled)
        self._judge.at_the_end()
        for node in nodes:
            check_dispatch(node.log)

    def _begin_with_messages(self, node: HaHost) -> None:
        log = node.log
        log.store.put(log.put_requests(self._random.randint(1, 30)))
        log.store.flush()

    async def _storm(self) -> None:
        chaos, fabric = HaChaos(self._world, self._nodes), self._world.fabric
        if self._plan.dark_at_promise is not None:
            self._judge.alarm = self._plan.dark_at_promise, chaos.darken_soon
        for moment in self._plan.puts:
            fabric.loop.call_at(moment, self._put, context=fabric.context)
        for moment in self._plan.looks:
            fabric.loop.call_at(moment, self._look, context=fabric.context)
        strikes = [asyncio.create_task(chaos.strike(at, what)) for at, what in self._plan.chaos]
        await asyncio.sleep(STORM_S)
        self._judge.alarm = None
        chaos.end()
        await asyncio.gather(*strikes)

    def _put(self) -> None:
        self._nodes[0].put(self._random.randint(1, 4), waits=self._random.random() < 0.8)

    def _look(self) -> None:
        node = self._random.choice(self._nodes)
        if node.answers:
            check_dispatch(node.log)

    async def _last_send(self) -> None:
        """A slave that has nothing yet counts as far behind until it is sent something (H10): so there may be some."""
        judge, before = self._judge, self._judge.promise_count
        is_able = sum(map(judge.compatible, judge.slaves)) >= self._plan.settings.slaves_needed
        is_confirmation_due = is_able and self._plan.sync_replicas
        ends_at = self._loop.time() + CALM_S
        while True:
            self._nodes[0].put(1, waits=True)
            await asyncio.sleep(1.0)
            if judge.promise_count > before or not is_confirmation_due:
                return
            if self._loop.time() > ends_at:
                judge.fail("H9", "enough slaves follow, and a send was not confirmed")

    async def _until(self, what_lacks: Callable[[], tuple[str, str] | None]) -> None:
        """Wait until nothing is missing. Fails after a time."""
        ends_at = self._loop.time() + CALM_S
        while (lack := what_lacks()) is not None:
            if self._loop.time() > ends_at:
                self._judge.fail(*lack)
            await asyncio.sleep(LOOK_S)
