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
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the peers are those of the interop tests

import report
from machine import Meter, describe, resident_mb
from report import Round
from sides import BATCHES, BEST, DEFAULT, OUR_CLIENT, OURS, THEIR_CLIENT, Field, Side

from support.java import missing, prepare

MAIN = (OURS, BEST)
TAIL_ENTRIES = 1000


@dataclass(frozen=True)
class Load:
    """One kind of round. ``size``: payload bytes; ``window``: requests in flight."""

    name: str
    size: int
    quorums: tuple[int, int, int] = (3, 3, 2)
    window: int = 1000


ADDS = (
    Load("add 100 B, 3/3/2", 100),
    Load("add 1 KB, 3/3/2", 1024),
    Load("add 100 B, 3/2/2", 100, (3, 2, 2)),
    Load("add 1 KB, 3/2/2", 1024, (3, 2, 2)),
)
LATENCY = Load("add 1 KB, 3/3/2, one in flight", 1024, window=1)
# A striped ledger cannot be read in batches: each entry is a request of its own.
READS = (Load("read 1 KB, 3/3/2", 1024, window=4), Load("read 1 KB, 3/2/2", 1024, (3, 2, 2), window=2))
RECOVERY = Load(f"recover {TAIL_ENTRIES} unconfirmed, 1 KB, 3/3/2", 1024)


@dataclass(frozen=True)
class Plan:
    """How long and how often; seconds unless the name says otherwise."""

    limit: float
    reserve: float  # for the restarts and for cleaning up; no round begins in it
    rounds: int
    add: float
    read: float
    read_entries: int
    latency: float
    recoveries: int
    warm_java: float  # at each payload size: a JVM's first ten seconds cost up to twice the CPU
    warm_ours: float
    default: bool  # the original with its default settings as a third side
    mixes: bool  # our client on the original's bookies, and the reverse


FULL = Plan(
    limit=300, reserve=25, rounds=3, add=2.2, read=1.5, read_entries=100_000, latency=1.5, recoveries=5,
    warm_java=9.0, warm_ours=2.0, default=True, mixes=True,
)  # fmt: skip
QUICK = Plan(
    limit=90, reserve=18, rounds=2, add=1.0, read=1.0, read_entries=50_000, latency=1.0, recoveries=2,
    warm_java=4.0, warm_ours=1.0, default=False, mixes=False,
)  # fmt: skip


class Bench:
    """Runs the rounds of a plan; stops adding rounds when the time is nearly up."""

    def __init__(self, field: Field, plan: Plan, started: float) -> None:
        self.field, self.plan, self.started = field, plan, started
        self.rounds: list[Round] = []
        self.skipped = 0
        self.stored: Counter[str] = Counter()  # entries by bookie

    async def run(self) -> None:
        await self._warm()
        for load in ADDS:
            await self._in_turn(load, self._sides(load), self.plan.add)
        await self._in_turn(LATENCY, self._sides(LATENCY), self.plan.latency)
        await self._recoveries()
        for load in READS:
            if not self._late():
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
            for load in ADDS[:2]:
                await self._adds(side, load, seconds)
            self._say(f"warm: {name}")

    async def _in_turn(self, load: Load, names: list[str], seconds: float) -> None:
        for number in range(self.plan.rounds):
            # One round less is enough for the sides that only stand beside the comparison.
            for name in names if number < max(1, self.plan.rounds - 1) else MAIN:
                if self._late():
                    continue
                self._record(await self._adds(self.field.sides[name], load, seconds))

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
        names = [name for name in (*MAIN, DEFAULT) if name in self.field.sides]
        ledgers = {name: await self._filled(self.field.sides[name], load) for name in names}
        for number in range(self.plan.rounds + 1):
            for name in names:
                if self._late():
                    continue
                side = self.field.sides[name]
                batch = "yes" if side.batch_reads and load.quorums[0] == load.quorums[1] else "no"
                meter = Meter(side.pids)
                done = await side.client.ask(
                    "load-reads", ledger=ledgers[name], batch=batch, window=load.window, seconds=self.plan.read
                )
                meter.stop()
                if number:  # the first one warms
                    self._record(_round(load.name, side, meter, done))

    async def _filled(self, side: Side, load: Load) -> str:
        """A closed ledger to read."""
        e, qw, qa = load.quorums
        ledger = (await side.client.ask("create", e=e, qw=qw, qa=qa))["ledger"]
        await side.client.ask(
            "load-adds", ledger=ledger, size=load.size, window=1000, seconds=60, most=self.plan.read_entries
        )
        await side.client.ask("close", ledger=ledger)
        return ledger

    async def _recoveries(self) -> None:
        names = [name for name in (*MAIN, DEFAULT) if name in self.field.sides]
        for number in range(self.plan.recoveries + 1):
            for name in names:
                if self._late():
                    continue
                found = await self._recovery(self.field.sides[name])
                if number:
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
            if time.monotonic() - self.started < self.plan.limit - self.plan.reserve / 2:
                bookie = self.field.sides[name].bookies[0]
                bookie.kill()
                found[name] = {"seconds": await bookie.start(), "entries": self.stored[bookie.id]}
        return found

    def _late(self) -> bool:
        late = time.monotonic() - self.started > self.plan.limit - self.plan.reserve
        self.skipped += late
        return late

    def _record(self, found: Round) -> None:
        self.rounds.append(found)
        self._say(str(found))

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", file=sys.stderr, flush=True)


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
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tally-bench-", dir="/var/tmp") as folder:
        field = Field(prepare(), Path(folder) / "peers")
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
    found = asyncio.run(measure(QUICK if arguments.quick else FULL))
    table = report.markdown(found)
    print(table)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.docs:
        arguments.docs.write_text(report.replace_table(arguments.docs.read_text(), table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
