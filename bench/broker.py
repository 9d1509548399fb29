"""Brokers of ours and of the original, in turn in one run: sends, replication, pulls, catch-up, start, memory.

    python bench/broker.py [--quick] [--json FILE] [--docs docs/benchmarks.md]

All pairs of master and slave are up all the time and take turns (ours, original, ours …) on the same disk;
docs/benchmarks.md has the method. The figure to compare is CPU per message, of master, slave and client each. Needs
Java and Maven. Ends within its time: eight minutes, or two with --quick.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the peers are those of the interop tests

import broker_report as report
from broker_report import Round
from broker_sides import ASYNC, OURS, SYNC, THEIRS, Field, Pair, Side, name_of
from machine import Meter, anonymous_mb, describe
from report import replace_table
from turns import Turns

from support.java import ROCKETMQ, missing, prepare

SIZE = 1024


@dataclass(frozen=True)
class Load:
    """One kind of sending: ``window`` messages, callers or batches of ``batch`` without answer."""

    name: str
    how: str
    window: int
    batch: int = 1


SENDS = (
    Load("send 1 KB, one in flight", "sync", 1),
    Load("send 1 KB, 1,000 in flight", "async", 1000),
    Load("send 1 KB in batches of 100, 4 in flight", "batch", 4, 100),
)
PULLS = {"pull 1 KB from the master": "master", "pull 1 KB from the slave": "slave"}
CATCH_UP = "catch-up of a slave, queues built"


@dataclass(frozen=True)
class Plan:
    """How long and how often; seconds unless the name says otherwise."""

    limit: float  # from when all processes run
    reserve: float  # for cleaning up; no round begins in it
    rounds: int
    send: float
    pull: float
    warm_java: float  # of each load: a JVM's first half minute costs up to twice the CPU
    warm_ours: float
    catch_up_messages: int
    mix: bool  # our client on the original's brokers too


FULL = Plan(
    limit=480, reserve=15, rounds=3, send=3.0, pull=3.0, warm_java=9.0, warm_ours=2.0, catch_up_messages=400_000,
    mix=True,
)  # fmt: skip
QUICK = Plan(
    limit=120, reserve=10, rounds=1, send=2.0, pull=1.5, warm_java=4.0, warm_ours=1.0, catch_up_messages=100_000,
    mix=False,
)  # fmt: skip


class Bench(Turns):
    """Runs the rounds of a plan while there is time."""

    def __init__(self, field: Field, plan: Plan, started: float) -> None:
        super().__init__(started, plan.limit, plan.reserve)
        self.field, self.plan = field, plan
        self.rounds: list[Round] = []

    async def run(self) -> None:
        for name, side in self.field.sides.items():
            await self.attempt(name, "warming", self._warm(side))
        for mode in (ASYNC, SYNC):
            for load in SENDS:
                for _ in range(self.plan.rounds):
                    for name, side in self.field.sides.items():
                        if self.takes_turn(name):
                            await self.attempt(name, load.name, self._send_round(side, mode, load))
        await self._catch_ups()
        for what, role in PULLS.items():
            for _ in range(self.plan.rounds):
                for name, side in self.field.sides.items():
                    # Our client has no way to ask for a slave that has a master: the same client for both then.
                    if (role == "master" or side.client.kind == "java") and self.takes_turn(name):
                        await self.attempt(name, what, self._pull_round(side, what, role))

    async def _warm(self, side: Side) -> None:
        seconds = self.plan.warm_ours if side.name == OURS else self.plan.warm_java
        for mode in (ASYNC, SYNC):
            for load in SENDS[1:]:
                await self._send(side, side.pairs[mode], mode, load, seconds / 2)
        self.say(f"warm: {side.name}")

    async def _send(self, side: Side, pair: Pair, mode: str, load: Load, seconds: float) -> dict[str, str]:
        return await side.client.ask(
            "load-sends", ns=pair.house.ns, topic=name_of(mode), size=SIZE, how=load.how, window=load.window,
            batch=load.batch, seconds=seconds,
        )  # fmt: skip

    async def _send_round(self, side: Side, mode: str, load: Load) -> None:
        pair = side.pairs[mode]
        meter = Meter(self._pids(side, pair))
        done = await self._send(side, pair, mode, load, self.plan.send)
        await pair.caught_up(name_of(mode))  # what the slave has still to do counts
        meter.stop()
        self._record(f"{load.name}, {mode} replication", side, pair, meter, done)

    async def _pull_round(self, side: Side, what: str, role: str) -> None:
        """The whole topic again and again."""
        pair = side.pairs[ASYNC]
        meter = Meter(self._pids(side, pair))
        done = await side.client.ask(
            "load-pulls", ns=pair.house.ns, topic=name_of(ASYNC), seconds=self.plan.pull, role=role
        )
        meter.stop()
        self._record(what, side, pair, meter, done)

    async def _catch_ups(self) -> None:
        for _ in range(self.plan.rounds):
            for name in (OURS, THEIRS):
                if self.takes_turn(name):
                    await self.attempt(name, CATCH_UP, self._catch_up(self.field.sides[name]))

    async def _catch_up(self, side: Side) -> None:
        """A slave is killed, its master takes messages, and it starts again: timed from its first progress."""
        pair, topic = side.pairs[ASYNC], name_of(ASYNC)
        before = await pair.ends(pair.slave, topic)
        pair.slave.kill()
        await side.client.ask(
            "load-sends", ns=pair.house.ns, topic=topic, size=SIZE, how="batch", window=4, batch=100, seconds=30,
            most=self.plan.catch_up_messages,
        )  # fmt: skip
        await pair.slave.start()
        await pair.moves(topic, before)
        at = sum(await pair.ends(pair.slave, topic))
        meter = Meter(self._pids(side, pair))
        seconds = await pair.caught_up(topic)
        meter.stop()
        count = max(1, sum(await pair.ends(pair.slave, topic)) - at)
        self._record(CATCH_UP, side, pair, meter, {"count": str(count), "seconds": str(max(seconds, 1e-3))})

    def _pids(self, side: Side, pair: Pair) -> list[int]:
        return [pair.master.pid, pair.slave.pid, side.client.pid]

    def _record(self, load: str, side: Side, pair: Pair, meter: Meter, done: dict[str, str]) -> None:
        count = int(done["count"])
        master, slave, client = (meter.cpu[pid] / count * 1e6 for pid in self._pids(side, pair))
        self.rounds.append(
            Round(
                load, side.name, count / float(done["seconds"]), float(done.get("p50", 0)), float(done.get("p99", 0)),
                master, slave, client, meter.others_cores,
            )
        )  # fmt: skip
        self.say(str(self.rounds[-1]))


async def measure(plan: Plan) -> dict[str, object]:
    """Everything that the report needs."""
    java = prepare(ROCKETMQ)  # the first run downloads the original: that is not part of the time
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tally-bench-", dir="/var/tmp") as folder:
        field = Field(java, Path(folder) / "peers")
        machine = describe(Path(folder))
        try:
            await field.start(mix=plan.mix)
            rest = _memory(field)
            bench = Bench(field, plan, time.monotonic())
            await bench.run()
            loaded = _memory(field)
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
        "resident_mb": {"rest": rest, "loaded": loaded},
        "rounds": [asdict(found) for found in bench.rounds],
    }


def _memory(field: Field) -> dict[str, dict[str, float]]:
    """Without mapped files, which are the disk's and grow with it."""
    return {
        name: {role: anonymous_mb(getattr(field.sides[name].pairs[ASYNC], role).pid) for role in ("master", "slave")}
        for name in (OURS, THEIRS)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="one short round of each, three sides: within 2 minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="replace the table in this Markdown file")
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        print(f"bench/broker.py: the original cannot run here: {reason}", file=sys.stderr)
        return 1
    if arguments.docs:
        _into(arguments.docs, "")  # a page without place for the table is an error now
    found = asyncio.run(measure(QUICK if arguments.quick else FULL))
    table = report.markdown(found)
    print(table)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.docs:
        arguments.docs.write_text(_into(arguments.docs, table))
    return 1 if found["left_out"] else 0


def _into(page: Path, table: str) -> str:
    return replace_table(page.read_text(), table, report.BEGIN, report.END)


if __name__ == "__main__":
    sys.exit(main())
