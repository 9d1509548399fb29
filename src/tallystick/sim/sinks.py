"""One simulated life of a stream that sinks write: drivers, executors, readers and consumers, whole.

It is a life of a stream (``streams.py``) with its cluster and its faults; only who writes it are others. In the end
each application commits once more, all is read, and a sweep leaves nothing that belongs to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import partial

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.errors import NoSuchStream
from tallystick.sim.life import live
from tallystick.sim.series import Outcome
from tallystick.sim.sinks_driver import Checkpoint, Sinks, drive, execute, inherit, sweep_by_hand
from tallystick.sim.sinks_judge import SinksJudge
from tallystick.sim.sinks_plan import SinksPlan
from tallystick.sim.streams import CALM_S, MAX_TURNS, OPENED_S, Program, StreamsLife
from tallystick.sim.streams_list_judge import NAME
from tallystick.sim.streams_plan import Rich
from tallystick.sim.streams_shared import AGAIN_S, FUTILE, again
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.trace import Trace


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = SinksPlan.draw(rng, Rich(seed))
    loop = VirtualLoop(max_seconds=plan.storm_s + CALM_S, max_turns=MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = SinksJudge(trace, plan, loop.time)
    judge.stop = loop.stop
    life = SinksLife(seed, rng=rng, plan=plan, loop=loop, trace=trace, judge=judge)
    return live(seed, life.live(), loop, trace, judge, "S9")


class SinksLife(StreamsLife):
    """One life of such a stream; ``live`` it once."""

    def __init__(
        self, seed: int, *, rng: random.Random, plan: SinksPlan, loop: VirtualLoop, trace: Trace, judge: SinksJudge
    ) -> None:
        super().__init__(seed, rng=rng, plan=plan, loop=loop, trace=trace, judge=judge)
        self._sinks_plan, self._sinks_judge = plan, judge

    async def _storm(self) -> None:
        if self._sinks_plan.is_made:
            await self._run("maker", self._make)
        await super()._storm()

    async def _make(self, client: BookKeeper) -> None:
        name = self._sinks_plan.applications[0].name
        await again(lambda: client.open_sink(NAME, name, query_of(name), settings=self._shared.settings))

    def _programs(self) -> list[tuple[float, str, Program]]:
        plan = self._sinks_plan
        checkpoints = {each.name: Checkpoint(query_of(each.name)) for each in plan.applications}
        sinks = self._sinks = Sinks(self._shared, self._sinks_judge, plan, checkpoints)
        programs = super()._programs()
        programs += [(0.0, f"executor{number}", partial(execute, sinks)) for number in range(plan.executors)]
        programs += [(0.0, f"sweeper{number}", partial(sweep_by_hand, sinks)) for number in range(plan.sweepers)]
        for application in plan.applications:
            for number, begins in enumerate(application.begins):
                name = f"{application.name} driver{number}"
                programs.append((begins, name, partial(drive, sinks, application, name)))
        return programs

    async def _inherit(self, client: BookKeeper) -> None:
        """Commit once more, and see that who follows has all of it."""
        for application in self._sinks_plan.applications:
            until = self._loop.time() + OPENED_S
            while (error := await inherit(self._sinks, application, client)) is not None:
                if self._loop.time() > until:
                    self._judge.fail("S9", f"{application.name} cannot commit: {error!r}")
                await asyncio.sleep(AGAIN_S)
        await self._follow("v3", "v2", "auto")
        self._shared.is_read.set()
        await self._end(self._followers)

    async def _tidy(self, client: BookKeeper) -> None:
        """Sweep, or delete all; nothing is left that belongs to nothing."""
        if self._plan.is_deleted:
            await self._delete(client)
        else:
            with contextlib.suppress(NoSuchStream, *FUTILE):
                await client.sweep_sinks(NAME)
        await self._await_tidy()


def query_of(application: str) -> str:
    """Returns who an application is, while it has its checkpoint."""
    return f"query of {application}"
