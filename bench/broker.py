"""Brokers of ours and of the original, in turn in one run: sends, replication, pulls, catch-up, start, memory.

    python bench/broker.py [--quick] [--json FILE] [--docs docs/benchmarks.md]

All pairs of master and slave are up all the time and take turns (ours, original, ours …) on the same disk;
docs/benchmarks.md has the method. The figure to compare is CPU per message, of master, slave and client each. Needs
Java and Maven. Ends within its time: eleven minutes, or three with --quick.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the peers are those of the interop tests

import command
from beside import Bench, beside_original
from broker_plan import CATCH_UPS, CONNECTIONS, FULL, PULLS, PUSH, QUICK, SENDS, SIZE, Load, Plan, title
from broker_report import markdown
from broker_sides import ASYNC, PUSHED, SYNC, THEIRS, Field, Pair, Side, name_of
from machine import Meter
from report import OURS, PYTHON
from sends import connections, send_over

from support.java import ROCKETMQ, missing

MAIN = (OURS, PYTHON, THEIRS)


class BrokerBench(Bench):
    """Runs the rounds of a plan while there is time."""

    def __init__(self, field: Field, plan: Plan, start: float) -> None:
        super().__init__(start, plan.limit, plan.reserve)
        self.field, self.plan = field, plan

    async def run(self) -> None:
        main = [name for name in MAIN if name in self.field.sides]
        mixed = [name for name in self.field.sides if name not in main] if self.plan.mixes else []
        for name, side in self.field.sides.items():
            await self.attempt(name, "warming", self._warm(side))
        for mode in (ASYNC, SYNC):
            for load in SENDS:
                await self._rounds(title(load, mode), main, partial(self._send_round, mode, load), mixed)
        for load in CATCH_UPS:
            await self._rounds(load.name, main, partial(self._catch_up, load))
        for load in CONNECTIONS:
            await self._rounds(load.name, main, partial(self._connections_round, load))
        for what, role in PULLS.items():
            # Our client has no way to ask for a slave that has a master: the same client for both then.
            able = main if role == "master" else [n for n, s in self.field.sides.items() if s.client.kind == "java"]
            await self._rounds(what, able, partial(self._pull_round, what, role))
        await self._pushes(main)

    async def _rounds(
        self, what: str, names: Sequence[str], work: Callable[[str], Awaitable[None]], once: Sequence[str] = ()
    ) -> None:
        """``once``: sides that only stand beside the comparison, for which one round is enough."""
        for number in range(self.plan.rounds):
            await self.each(what, names if number else [*names, *once], work)

    async def _warm(self, side: Side) -> None:
        seconds = self.plan.warm_ours if side.name in (OURS, PYTHON) else self.plan.warm_java
        for mode in (ASYNC, SYNC):
            for load in SENDS[1:]:
                await self._send(side, mode, load, seconds=seconds / 2)
        self.say(f"warm: {side.name}")

    async def _send(self, side: Side, mode: str, load: Load, **limits: float) -> dict[str, str]:
        response: dict[str, str] = await side.client.ask(
            "load-sends",
            ns=side.pairs[mode].house.ns,
            topic=name_of(mode),
            size=load.size,
            how=load.how,
            window=load.window,
            batch=load.batch,
            **limits,
        )
        return response

    async def _send_round(self, mode: str, load: Load, name: str) -> None:
        side = self.field.sides[name]
        pair, topic = side.pairs[mode], name_of(mode)
        before = sum(await pair.ends(pair.master, topic))
        meter = _meter(side, pair)
        outcome = await self._send(side, mode, load, seconds=self.plan.send)
        # What master and slave have still to do counts.
        await pair.caught_up(topic, await pair.grown(topic, before + int(outcome["count"])))
        meter.stop()
        self.record(title(load, mode), name, meter, outcome, _roles(side, pair))

    async def _connections_round(self, load: Load, name: str) -> None:
        """The same client for all brokers: the one in this process."""
        pair, topic = self.field.sides[name].pairs[ASYNC], name_of(ASYNC)
        before = sum(await pair.ends(pair.master, topic))
        roles = {**{role: [broker.pid] for role, broker in pair.brokers.items()}, "client": [os.getpid()]}
        async with connections(pair.master.address, load.window) as clients:
            meter = Meter(pid for pids in roles.values() for pid in pids)
            outcome = await send_over(clients, pair.master.address, topic, bytes(load.size), self.plan.send)
            await pair.caught_up(topic, await pair.grown(topic, before + int(outcome["count"])))
            meter.stop()
        self.record(load.name, name, meter, outcome, roles)

    async def _pushes(self, names: Sequence[str]) -> None:
        """Consumers join, and leave, outside of all rounds; the first round of each side warms."""
        await self.each(f"join: {PUSH.name}", names, partial(self._ask_pushed, "join-push", consumers=PUSH.window))
        for number in range(self.plan.rounds + 1):
            await self.each(PUSH.name, names, partial(self._push_round, warm=number == 0))
        await self.each(f"leave: {PUSH.name}", names, partial(self._ask_pushed, "leave-push"))

    async def _ask_pushed(self, verb: str, name: str, **given: object) -> None:
        side = self.field.sides[name]
        await side.client.ask(verb, ns=side.pairs[ASYNC].house.ns, topic=PUSHED, **given)

    async def _push_round(self, name: str, *, warm: bool) -> None:
        """Each consumer is a group of its own: a message counts once for each of them."""
        side = self.field.sides[name]
        pair = side.pairs[ASYNC]
        count = PUSH.batch if warm else self.plan.push_messages
        meter = _meter(side, pair)
        outcome = await side.client.ask(
            "load-push", ns=pair.house.ns, topic=PUSHED, size=PUSH.size, count=count, seconds=50
        )
        meter.stop()
        if not warm:
            self.record(PUSH.name, name, meter, outcome, _roles(side, pair))

    async def _pull_round(self, what: str, role: str, name: str) -> None:
        """The whole topic again and again."""
        side = self.field.sides[name]
        pair = side.pairs[ASYNC]
        meter = _meter(side, pair)
        outcome = await side.client.ask(
            "load-pulls", ns=pair.house.ns, topic=name_of(ASYNC), seconds=self.plan.pull, role=role
        )
        meter.stop()
        if meter.cpu[pair.brokers[role].pid] < sum(meter.cpu[broker.pid] for broker in pair.brokers.values()) / 2:
            raise RuntimeError(f"another broker than the {role} did the work")
        self.record(what, name, meter, outcome, _roles(side, pair))

    async def _catch_up(self, load: Load, name: str) -> None:
        """A slave sleeps while its master takes messages: timed from when it wakes.

        It is not started anew: a process that has just begun cannot be compared with one that is warm. What it lacks is
        known before it wakes: a slave that works hard answers late, so that looking for its first progress may take as
        long as all the work.
        """
        side, topic = self.field.sides[name], name_of(ASYNC)
        pair = side.pairs[ASYNC]
        before = await pair.ends(pair.master, topic)
        await pair.caught_up(topic, before)
        pair.slave.pause()
        try:
            most = self.plan.catch_up_messages * SIZE // max(SIZE, load.size)
            outcome = await self._send(side, ASYNC, load, seconds=10, most=most)
            ends = await pair.grown(topic, sum(before) + int(outcome["count"]))
            meter = _meter(side, pair)
        finally:
            pair.slave.resume()
        outcome = {"count": outcome["count"], "seconds": str(await pair.caught_up(topic, ends))}
        meter.stop()
        self.record(load.name, name, meter, outcome, _roles(side, pair))


def _roles(side: Side, pair: Pair) -> dict[str, list[int]]:
    return {**{role: [broker.pid] for role, broker in pair.brokers.items()}, "client": [side.client.pid]}


def _meter(side: Side, pair: Pair) -> Meter:
    return Meter(pid for pids in _roles(side, pair).values() for pid in pids)


async def measure(plan: Plan) -> command.Results:
    """Everything that the report needs."""
    return await beside_original(
        ROCKETMQ,
        plan,
        lambda java, folder: Field(java, folder, python=plan.python, mix=plan.mixes),
        lambda field, start: BrokerBench(field, plan, start),
    )


def main() -> int:
    return command.run(
        __doc__,
        "one short round of each, fewer sides: within three minutes",
        lambda quick: asyncio.run(measure(QUICK if quick else FULL)),
        markdown,
        missing=missing(),
        place="brokers",
    )


if __name__ == "__main__":
    sys.exit(main())
