"""Ledgers of ours and of the original, in turn in one run: adds, latency, reads, recovery, start, memory.

    python bench/ledger.py [--quick] [--json FILE] [--docs docs/benchmarks.md]

Both clusters are up all the time and take turns (ours, original, ours, original …), on the same disk, with synced
journals, CRC32C, fresh ledgers, and the same number of requests in flight; docs/benchmarks.md has the method. A round
in which others used more than 0.3 of a core is left out of the medians where two quiet rounds remain; all rounds are
in the JSON. Needs Java and Maven. Ends within its time: nine minutes, or three with --quick.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the peers are those of the interop tests

import command
from beside import Bench, beside_original
from ledger_plan import (
    ADDS,
    AFTER_WRITE,
    FOLLOWS,
    FORCE,
    FULL,
    LATENCY,
    QUICK,
    RANDOM,
    READERS,
    READS,
    RECOVERY,
    STEADY,
    STEADY_RATE,
    TAIL_ENTRIES,
    Load,
    Plan,
)
from ledger_report import markdown
from ledger_sides import BATCHES, BEST, DEFAULT, OUR_CLIENT, THEIR_CLIENT, VERSION_3, Field, Side
from machine import Meter
from report import OURS, PYTHON

from support.java import BOOKKEEPER, missing

MAIN = (OURS, PYTHON, BEST)


class LedgerBench(Bench):
    """Runs the rounds of a plan while there is time."""

    def __init__(self, field: Field, plan: Plan, start: float) -> None:
        super().__init__(start, plan.limit, plan.reserve)
        self.field, self.plan = field, plan
        self.stored: Counter[str] = Counter()  # entries by bookie

    async def run(self) -> None:
        await self._warm()
        for load in ADDS:
            await self._in_turn(load, self._sides(load), self.plan.add)
        await self._in_turn(LATENCY, self._sides(LATENCY), self.plan.latency)
        await self._in_turn_by(STEADY, "load-steady", self._main(), self.plan.latency, rate=STEADY_RATE)
        for load in READS:
            await self._reads(load)
        await self._many_readers()
        for _ in range(self.plan.rounds):
            await self.each(AFTER_WRITE.name, self._main(), self._after_write_round)
        await self._recoveries()
        names = [name for name in (OURS, DEFAULT) if name in self.field.sides]
        for load in FOLLOWS:
            await self._in_turn_by(load, "load-follow", names, self.plan.follow, pause=load.window)
        await self._in_turn_by(FORCE, "load-force", names, self.plan.follow, deferred="yes", window=FORCE.window)

    def _main(self) -> list[str]:
        return [name for name in MAIN if name in self.field.sides]

    def _sides(self, load: Load) -> list[str]:
        """The other sides stand beside the comparison of the main ones, each where it says something."""
        others = [DEFAULT]
        if load.window > 1:
            others.insert(0, BATCHES)
        if load.window > 1 and load.quorums == (3, 3, 2):
            others += [VERSION_3, OUR_CLIENT, THEIR_CLIENT]
        return [*self._main(), *(name for name in others if name in self.field.sides)]

    async def _warm(self) -> None:
        for name, side in self.field.sides.items():
            if name == BATCHES:
                continue  # the processes of another side
            seconds = self.plan.warm_ours if name in (OURS, PYTHON, VERSION_3, OUR_CLIENT) else self.plan.warm_java
            if name in (DEFAULT, THEIR_CLIENT):
                seconds /= 2  # fewer rounds follow
            await self.attempt(name, "warming", self._warm_side(side, seconds))

    async def _warm_side(self, side: Side, seconds: float) -> None:
        for load in ADDS[:2]:
            await self._adds(side, load, seconds)
        self.say(f"warm: {side.name}")

    async def _in_turn(self, load: Load, names: list[str], seconds: float) -> None:
        for number in range(self.plan.rounds):
            # One round is enough for the sides that only stand beside the comparison.
            turn = self._main() if number else names
            await self.each(load.name, turn, lambda name: self._add_round(self.field.sides[name], load, seconds))

    async def _add_round(self, side: Side, load: Load, seconds: float) -> None:
        meter, outcome = await self._adds(side, load, seconds)
        self._record(load, side, meter, outcome)

    async def _adds(self, side: Side, load: Load, seconds: float) -> tuple[Meter, dict[str, str]]:
        e, qw, qa = load.quorums
        ledger = (await side.client.ask("create", e=e, qw=qw, qa=qa))["ledger"]
        meter = Meter(side.pids)
        outcome = await side.client.ask(
            "load-adds",
            ledger=ledger,
            size=load.size,
            window=load.window,
            seconds=seconds,
            batch="yes" if side.batch_adds else "no",
        )
        meter.stop()
        await side.client.ask("close", ledger=ledger)
        for bookie in side.bookies:
            self.stored[bookie.id] += int(outcome["count"]) * qw // e
        return meter, outcome

    async def _reads(self, load: Load) -> None:
        """Each side reads a closed ledger of its own."""
        names = [*self._main(), *(name for name in (VERSION_3, DEFAULT) if name in self.field.sides)]
        ledgers: dict[str, str] = {}

        async def fill(name: str) -> None:
            ledgers[name] = await self._fill(self.field.sides[name], load, self.plan.read_entries)

        await self.each(load.name, names, fill)
        await self._read_rounds(load, ledgers)
        if load is READS[0]:
            await self._read_rounds(RANDOM, {name: ledgers[name] for name in self._main() if name in ledgers})

    async def _many_readers(self) -> None:
        ledgers: dict[str, str] = {}

        async def fill(name: str) -> None:
            side, most = self.field.sides[name], self.plan.reader_entries
            ledgers[name] = ",".join([await self._fill(side, READERS, most) for _ in range(READERS.window)])

        await self.each(READERS.name, self._main(), fill)
        await self._read_rounds(READERS, ledgers)

    async def _fill(self, side: Side, load: Load, most: int) -> str:
        """As many entries as the plan says, or as a slow disk allows in a fair part of the time that is left."""
        e, qw, qa = load.quorums
        ledger = (await side.client.ask("create", e=e, qw=qw, qa=qa))["ledger"]
        seconds = min(self.plan.fill, self.remaining_s() / 6)
        await side.client.ask("load-adds", ledger=ledger, size=load.size, window=1000, seconds=seconds, most=most)
        await side.client.ask("close", ledger=ledger)
        return ledger

    async def _read_rounds(self, load: Load, ledgers: dict[str, str]) -> None:
        """The first round of each side warms."""
        for number in range(self.plan.rounds + 1):
            await self.each(load.name, ledgers, partial(self._read_round, load, ledgers, warm=number == 0))

    async def _read_round(self, load: Load, ledgers: dict[str, str], name: str, *, warm: bool) -> None:
        meter, outcome = await self._read(self.field.sides[name], load, ledgers[name], "no")
        if not warm:
            self._record(load, self.field.sides[name], meter, outcome)

    async def _after_write_round(self, name: str) -> None:
        """Each entry of a new ledger is read once: a second reading would find it in the page cache."""
        side = self.field.sides[name]
        ledger = await self._fill(side, AFTER_WRITE, self.plan.read_entries)
        meter, outcome = await self._read(side, AFTER_WRITE, ledger, "yes")
        self._record(AFTER_WRITE, side, meter, outcome)

    async def _read(self, side: Side, load: Load, ledger: str, once: str) -> tuple[Meter, dict[str, str]]:
        batch = "yes" if side.batch_reads and load.quorums[0] == load.quorums[1] else "no"
        seconds = 30.0 if once == "yes" else self.plan.read
        given = {"ledger": ledger, "batch": batch, "once": once, "window": load.window, "seed": 1, "seconds": seconds}
        meter = Meter(side.pids)
        outcome = await side.client.ask(load.verb, **given)
        meter.stop()
        return meter, outcome

    async def _recoveries(self) -> None:
        names = [*self._main(), *(name for name in (DEFAULT,) if name in self.field.sides)]
        for number in range(self.plan.recoveries + 1):
            await self.each(RECOVERY.name, names, partial(self._recovery_round, warm=number == 0))

    async def _recovery_round(self, name: str, *, warm: bool) -> None:
        """A tail of entries that all carry LAC -1: handed to the client while the bookies are paused."""
        side = self.field.sides[name]
        ledger = (await side.client.ask("create", e=3, qw=3, qa=2))["ledger"]
        for bookie in side.bookies:
            bookie.pause()
        await side.client.ask("send", ledger=ledger, count=TAIL_ENTRIES, size=RECOVERY.size, seed=1)
        for bookie in side.bookies:
            bookie.resume()
        await side.client.ask("settle", ledger=ledger)
        meter = Meter(side.pids)
        response = await side.client.ask("open", ledger=ledger, recover="yes")
        meter.stop()
        if int(response["last"]) != TAIL_ENTRIES - 1:
            raise RuntimeError(f"{side.name} recovered up to {response['last']}, not {TAIL_ENTRIES - 1}")
        outcome = {
            "count": str(TAIL_ENTRIES),
            "seconds": response["seconds"],
            "p50": str(float(response["seconds"]) * 1e3),
        }
        if not warm:
            self._record(RECOVERY, side, meter, outcome)

    async def _in_turn_by(
        self, load: Load, verb: str, names: list[str], seconds: float, *, deferred: str = "no", **given: object
    ) -> None:
        """Rounds on a new ledger each. What only version 3 has, the original's client speaks at its defaults."""

        async def round_of(name: str) -> None:
            side = self.field.sides[name]
            ledger = (await side.client.ask("create-mode", e=3, qw=3, qa=2, deferred=deferred))["ledger"]
            meter = Meter(side.pids)
            outcome = await side.client.ask(verb, ledger=ledger, size=load.size, seconds=seconds, **given)
            meter.stop()
            await side.client.ask("close", ledger=ledger)
            self._record(load, side, meter, outcome)

        for _ in range(self.plan.rounds):
            await self.each(load.name, names, round_of)

    async def restarts(self) -> dict[str, dict[str, float]]:
        """Kill one bookie a side and start it again: the seconds until it answers, and how many entries it holds."""
        restarts: dict[str, dict[str, float]] = {}
        for name in self._main():
            if not self.left_out(name) and self.remaining_s() > -self.plan.reserve / 2:
                bookie = self.field.sides[name].bookies[0]
                bookie.kill()
                restarts[name] = {"seconds": await bookie.start(), "entries": self.stored[bookie.id]}
        return restarts

    def _record(self, load: Load, side: Side, meter: Meter, outcome: dict[str, str]) -> None:
        bookies = [bookie.pid for bookie in side.bookies]
        self.record(load.name, side.name, meter, outcome, {"client": [side.client.pid], "bookie": bookies})


async def measure(plan: Plan) -> command.Results:
    """Everything that the report needs."""
    return await beside_original(
        BOOKKEEPER,
        plan,
        lambda java, folder: Field(java, folder, default=plan.default, python=plan.python, mixes=plan.mixes),
        lambda field, start: LedgerBench(field, plan, start),
    )


def main() -> int:
    return command.run(
        __doc__,
        "fewer and shorter rounds and sides: within 210 s",
        lambda quick: asyncio.run(measure(QUICK if quick else FULL)),
        markdown,
        missing=missing(),
        place="ledgers",
    )


if __name__ == "__main__":
    sys.exit(main())
