"""Ledgers of ours and of the original, in turn in one run: adds, latency, reads, recovery, start, memory.

    python bench/ledger.py [--quick] [--json FILE] [--docs docs/benchmarks.md]

Both clusters are up all the time and take turns (ours, original, ours, original …), on the same disk, with synced
journals, CRC32C, fresh ledgers, and the same number of requests in flight; docs/benchmarks.md has the method. A round
in which others used more than 0.3 of a core is left out of the medians where two quiet rounds remain; all rounds are
in the JSON. Needs Java and Maven. Ends within its time: five minutes, or 90 seconds with --quick.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the peers are those of the interop tests

import report
from machine import Meter, describe, resident_mb
from plan import ADDS, FULL, LATENCY, QUICK, READS, RECOVERY, TAIL_ENTRIES, Load, Plan
from report import Round
from sides import BATCHES, BEST, DEFAULT, OUR_CLIENT, OURS, THEIR_CLIENT, Field, Side
from turns import Turns

from support.java import BOOKKEEPER, missing, prepare

MAIN = (OURS, BEST)


class Bench(Turns):
    """Runs the rounds of a plan while there is time."""

    def __init__(self, field: Field, plan: Plan, started: float) -> None:
        super().__init__(started, plan.limit, plan.reserve)
        self.field, self.plan = field, plan
        self.rounds: list[Round] = []
        self.stored: Counter[str] = Counter()  # entries by bookie

    async def run(self) -> None:
        await self._warm()
        for load in ADDS:
            await self._in_turn(load, self._sides(load), self.plan.add)
        await self._in_turn(LATENCY, self._sides(LATENCY), self.plan.latency)
        await self._recoveries()
        for load in READS:
            await self._reads(load)

    def _sides(self, load: Load) -> list[str]:
        """The other sides stand beside the comparison of the main two, each where it says something."""
        others = [DEFAULT]
        if load.window > 1:
            others.insert(0, BATCHES)
        if load.window > 1 and load.quorums == (3, 3, 2):
            others += [OUR_CLIENT, THEIR_CLIENT]
        return [name for name in (*MAIN, *others) if name in self.field.sides]

    async def _warm(self) -> None:
        for name, side in self.field.sides.items():
            if name == BATCHES:
                continue  # the processes of another side
            seconds = self.plan.warm_ours if name in (OURS, OUR_CLIENT) else self.plan.warm_java
            if name in (DEFAULT, THEIR_CLIENT):
                seconds /= 2  # fewer rounds follow
            await self.attempt(name, "warming", self._warm_side(side, seconds))

    async def _warm_side(self, side: Side, seconds: float) -> None:
        for load in ADDS[:2]:
            await self._adds(side, load, seconds)
        self.say(f"warm: {side.name}")

    async def _in_turn(self, load: Load, names: list[str], seconds: float) -> None:
        for number in range(self.plan.rounds):
            # One round less is enough for the sides that only stand beside the comparison.
            for name in names if number < max(1, self.plan.rounds - 1) else MAIN:
                if self.takes_turn(name):
                    await self.attempt(name, load.name, self._add_round(self.field.sides[name], load, seconds))

    async def _add_round(self, side: Side, load: Load, seconds: float) -> None:
        self._record(await self._adds(side, load, seconds))

    async def _adds(self, side: Side, load: Load, seconds: float) -> Round:
        e, qw, qa = load.quorums
        ledger = (await side.client.ask("create", e=e, qw=qw, qa=qa))["ledger"]
        meter = Meter(side.pids)
        done = await side.client.ask(
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
            self.stored[bookie.id] += int(done["count"]) * qw // e
        return _round(load.name, side, meter, done)

    async def _reads(self, load: Load) -> None:
        """Each side reads a closed ledger of its own; the first round of each warms."""
        names = [name for name in (*MAIN, DEFAULT) if name in self.field.sides]
        ledgers: dict[str, str] = {}
        for name in names:
            if self.takes_turn(name):
                await self.attempt(name, load.name, self._fill(self.field.sides[name], load, ledgers))
        for number in range(self.plan.rounds + 1):
            for name in ledgers:
                if self.takes_turn(name):
                    work = self._read_round(self.field.sides[name], load, ledgers[name], warm=number == 0)
                    await self.attempt(name, load.name, work)

    async def _fill(self, side: Side, load: Load, ledgers: dict[str, str]) -> None:
        """As many entries as the plan says, or as a slow disk allows in a fair part of the time that is left."""
        e, qw, qa = load.quorums
        ledger = (await side.client.ask("create", e=e, qw=qw, qa=qa))["ledger"]
        seconds = min(self.plan.fill, self.left() / 6)
        most = self.plan.read_entries
        await side.client.ask("load-adds", ledger=ledger, size=load.size, window=1000, seconds=seconds, most=most)
        await side.client.ask("close", ledger=ledger)
        ledgers[side.name] = ledger

    async def _read_round(self, side: Side, load: Load, ledger: str, *, warm: bool) -> None:
        batch = "yes" if side.batch_reads and load.quorums[0] == load.quorums[1] else "no"
        meter = Meter(side.pids)
        done = await side.client.ask(
            "load-reads", ledger=ledger, batch=batch, window=load.window, seconds=self.plan.read
        )
        meter.stop()
        if not warm:
            self._record(_round(load.name, side, meter, done))

    async def _recoveries(self) -> None:
        names = [name for name in (*MAIN, DEFAULT) if name in self.field.sides]
        for number in range(self.plan.recoveries + 1):
            for name in names:
                if self.takes_turn(name):
                    work = self._recovery_round(self.field.sides[name], warm=number == 0)
                    await self.attempt(name, RECOVERY.name, work)

    async def _recovery_round(self, side: Side, *, warm: bool) -> None:
        found = await self._recovery(side)
        if not warm:
            self._record(found)

    async def _recovery(self, side: Side) -> Round:
        """A tail of entries that all carry LAC -1: handed to the client while the bookies are paused."""
        ledger = (await side.client.ask("create", e=3, qw=3, qa=2))["ledger"]
        for bookie in side.bookies:
            bookie.pause()
        await side.client.ask("send", ledger=ledger, count=TAIL_ENTRIES, size=RECOVERY.size, seed=1)
        for bookie in side.bookies:
            bookie.resume()
        await side.client.ask("settle", ledger=ledger)
        meter = Meter(side.pids)
        opened = await side.client.ask("open", ledger=ledger, recover="yes")
        meter.stop()
        if int(opened["last"]) != TAIL_ENTRIES - 1:
            raise RuntimeError(f"{side.name} recovered up to {opened['last']}, not {TAIL_ENTRIES - 1}")
        done = {"count": str(TAIL_ENTRIES), "seconds": opened["seconds"], "p50": str(float(opened["seconds"]) * 1e3)}
        return _round(RECOVERY.name, side, meter, done)

    async def restarts(self) -> dict[str, dict[str, float]]:
        """Kill one bookie a side and start it again: the seconds until it answers, and how many entries it holds."""
        found: dict[str, dict[str, float]] = {}
        for name in MAIN:
            if not self.left_out(name) and self.left() > -self.plan.reserve / 2:
                bookie = self.field.sides[name].bookies[0]
                bookie.kill()
                found[name] = {"seconds": await bookie.start(), "entries": self.stored[bookie.id]}
        return found

    def _record(self, found: Round) -> None:
        self.rounds.append(found)
        self.say(str(found))


def _round(load: str, side: Side, meter: Meter, done: dict[str, str]) -> Round:
    count, client, bookies = int(done["count"]), side.client.pid, [bookie.pid for bookie in side.bookies]
    return Round(
        load=load,
        side=side.name,
        rate=count / float(done["seconds"]),
        p50_ms=float(done.get("p50", 0)),
        p99_ms=float(done.get("p99", 0)),
        client_us=meter.cpu[client] / count * 1e6,
        bookie_us=sum(meter.cpu[pid] for pid in bookies) / len(bookies) / count * 1e6,
        total_us=(meter.cpu[client] + sum(meter.cpu[pid] for pid in bookies)) / count * 1e6,
        others_cores=meter.others_cores,
    )


async def measure(plan: Plan) -> dict[str, object]:
    """Everything that the report needs."""
    java = prepare(BOOKKEEPER)  # the first run downloads the original: that is not part of the time
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tally-bench-", dir="/var/tmp") as folder:
        field = Field(java, Path(folder) / "peers")
        machine = describe(Path(folder))
        try:
            await field.start(default=plan.default, mixes=plan.mixes)
            rest = _memory(field)
            bench = Bench(field, plan, started)
            await bench.run()
            loaded = _memory(field)
            restarts = await bench.restarts()
        finally:
            field.stop()
    return {
        "machine": machine,
        "plan": asdict(plan),
        "seconds": time.monotonic() - started,
        "skipped_rounds": bench.skipped,
        "failures": bench.failures,
        "left_out": [name for name in bench.failures if bench.left_out(name)],
        "start_seconds": field.start_seconds,
        "restarts": restarts,
        "resident_mb": {"rest": rest, "loaded": loaded},
        "rounds": [asdict(found) for found in bench.rounds],
    }


def _memory(field: Field) -> dict[str, dict[str, float]]:
    return {
        side.name: {
            "client": resident_mb(side.client.pid),
            "bookie": sum(resident_mb(bookie.pid) for bookie in side.bookies) / len(side.bookies),
        }
        for side in field.sides.values()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, no third side: within 90 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="replace the table in this Markdown file")
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        print(f"bench/ledger.py: the original cannot run here: {reason}", file=sys.stderr)
        return 1
    if arguments.docs:
        report.replace_table(arguments.docs.read_text(), "")  # a page without place for the table is an error now
    found = asyncio.run(measure(QUICK if arguments.quick else FULL))
    table = report.markdown(found)
    print(table)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.docs:
        arguments.docs.write_text(report.replace_table(arguments.docs.read_text(), table))
    return 1 if found["left_out"] else 0


if __name__ == "__main__":
    sys.exit(main())
