"""Many ledgers: open in one client that loses a bookie, and closed ones in the plan of a Spark query.

    python bench/many_ledgers.py [--quick] [--json FILE] [--docs FILE]

Open: four bookies of this machine, 20,000 ledgers (3/2/2) open in one client, 2,000 appends a second spread over them,
each timed from when it was due; after a third of the time one bookie is killed, so its connection is reset. A turn is
the CPU time of the client's thread between two looks of 5 ms: what others on the machine do does not count; how much of
the longest were full collections of garbage is told, and how many objects they look at for each open ledger. Plan:
survey and plan of 100,000 closed ledgers, in a process of its own as in Spark. Both on SQLite and, where Java is, on
ZooKeeper (with a fifth of the ledgers in the plan).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the server is that of the tests

import command
import msgspec
import uvloop
from machine import describe
from report import grid

import tallystick
from support import zookeeper
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState
from tallystick.admin.process import ProcessId
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.schema import COLUMNS
from tallystick.pipeline.ledger.source import LedgerSourceReader

BOOKIES, RATE, AT_ONCE = 4, 2000, 500
LOOK_S = 0.005
SETTLE_S = 10.0  # for what is unanswered at the end


@dataclass(frozen=True)
class Size:
    open_ledgers: int
    seconds: float
    planned: int


QUICK, FULL = Size(2000, 9.0, 10_000), Size(20_000, 30.0, 100_000)


@dataclass
class Turns:
    """The longest turn of a loop, and the longest full collection, in CPU time of its thread."""

    longest_s: float = 0.0
    collection_s: float = 0.0
    _last: float = field(default_factory=time.thread_time)
    _collecting: float = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._collected)
        self.look()

    def stop(self) -> None:
        gc.callbacks.remove(self._collected)

    def restart(self) -> None:
        self.longest_s = self.collection_s = 0.0

    def _collected(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        elif about["generation"] == 2:
            self.collection_s = max(self.collection_s, time.thread_time() - self._collecting)

    def look(self) -> None:
        now = time.thread_time()
        self.longest_s, self._last = max(self.longest_s, now - self._last), now
        asyncio.get_running_loop().call_later(LOOK_S, self.look)


@dataclass(frozen=True)
class Latencies:
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: list[float]) -> Latencies:
        """All are infinite where nothing was answered, as on a machine that has much else to do."""
        times = sorted(seconds) or [math.inf]
        return cls(*(1000 * times[min(len(times) - 1, int(len(times) * part))] for part in (0.5, 0.99, 1.0)))


@dataclass(frozen=True)
class BookieLoss:
    """One run: appends before the bookie was killed and after, and what became of the writers."""

    metadata: str
    before: Latencies
    after: Latencies
    failed_writers: int
    refusals: dict[str, int]
    longest_turn_ms: float
    longest_collection_ms: float
    objects_per_ledger: float
    cpu_s: float
    load: float  # average of the machine over the last minute


@dataclass(frozen=True)
class Planned:
    metadata: str
    ledgers: int
    cpu_s: float
    wall_s: float


def main() -> int:
    return command.run(__doc__, "a tenth of the ledgers: half a minute", measure, markdown, place="many ledgers")


def measure(quick: bool) -> command.Results:
    size = QUICK if quick else FULL
    losses, planned = [], []
    for kind in ("SQLite", "ZooKeeper"):
        if kind == "ZooKeeper" and zookeeper.missing():
            print(f"no ZooKeeper server: {zookeeper.missing()}", file=sys.stderr)
            continue
        with metadata(kind) as (folder, uri):
            (Path(folder) / "dev.json").write_bytes(msgspec.json.encode(DevState(uri=uri)))
            cluster = DevCluster(folder)
            state = cluster.up(BOOKIES)
            try:
                losses.append(uvloop.run(lose_a_bookie(kind, state, size)))
            finally:
                cluster.down()
        with metadata(kind) as (_, uri):
            count = size.planned if kind == "SQLite" else size.planned // 5
            asyncio.run(fill(uri, count))
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as planner:
                planned.append(planner.submit(plan, kind, uri, count).result())
    return {"machine": describe(Path(tempfile.gettempdir())), "size": size, "lost": losses, "planned": planned}


@contextlib.contextmanager
def metadata(kind: str) -> Iterator[tuple[str, str]]:
    """A folder, and the URI of a place without a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "SQLite":
            yield folder, f"sqlite://{folder}/metadata.db"
            return
        with zookeeper.running(Path(folder) / "zookeeper") as server:
            yield folder, f"zk+hierarchical://{server.address}/ledgers"


async def lose_a_bookie(kind: str, state: DevState, size: Size) -> BookieLoss:
    async with tallystick.connect(state.uri) as bk:
        gc.collect()
        objects = len(gc.get_objects())
        writers = await open_many(bk, size.open_ledgers)
        gc.collect()
        objects = len(gc.get_objects()) - objects
        random.Random(1).shuffle(writers)
        appends = Appends(writers)
        await appends.run(size.seconds, state.nodes[0].process)
        loss = BookieLoss(
            kind,
            Latencies.of(appends.before),
            Latencies.of(appends.after),
            sum(writer._failure is not None for writer in writers),
            dict(+appends.refusals),
            appends.turns.longest_s * 1000,
            appends.turns.collection_s * 1000,
            objects / len(writers),
            appends.cpu_s,
            os.getloadavg()[0],
        )
        for writer in writers:
            writer.abort()
        return loss


async def open_many(bk: BookKeeper, count: int) -> list[LedgerWriter]:
    writers: list[LedgerWriter] = []
    while len(writers) < count:
        writers += await asyncio.gather(*(bk.create_ledger(3, write_quorum=2, ack_quorum=2) for _ in range(AT_ONCE)))
    return writers


class Appends:
    """Appends at a steady rate, to each ledger in turn, while a bookie is killed.

    ``before`` and ``after`` are the seconds from when an append was due to its answer, by whether it was due before the
    kill; ``cpu_s`` is what this process worked after it.
    """

    def __init__(self, writers: Sequence[LedgerWriter]) -> None:
        self.before: list[float] = []
        self.after: list[float] = []
        self.turns, self.refusals, self.cpu_s = Turns(), Counter[str](), 0.0
        self._writers, self._loop = writers, asyncio.get_running_loop()
        self._unanswered: set[asyncio.Future[int]] = set()
        self._killed_at = float("inf")

    async def run(self, seconds: float, victim: ProcessId | None) -> None:
        """The victim is killed after a third of the time."""
        self.turns.start()
        start, count = self._loop.time(), 0
        while (now := self._loop.time()) < start + seconds:
            if self._killed_at == float("inf") and now > start + seconds / 3:
                assert victim is not None
                os.kill(victim.pid, signal.SIGKILL)
                self._killed_at, self.cpu_s = now, -time.process_time()
                self.turns.restart()
            for _ in range(100):
                due_at = start + count / RATE
                if due_at > now:
                    break
                self._append(self._writers[count % len(self._writers)], due_at)
                count += 1
            await asyncio.sleep(max(0.0, min(LOOK_S, start + count / RATE - self._loop.time())))
        if self._unanswered:
            await asyncio.wait(self._unanswered, timeout=SETTLE_S)
        self.refusals["no answer"] += len(self._unanswered)
        self.turns.stop()
        self.cpu_s += time.process_time()

    def _append(self, writer: LedgerWriter, due_at: float) -> None:
        future = writer.append_nowait(b"x" * 100)
        self._unanswered.add(future)
        future.add_done_callback(partial(self._answered, due_at))

    def _answered(self, due_at: float, future: asyncio.Future[int]) -> None:
        self._unanswered.discard(future)
        if error := future.exception():
            self.refusals[type(error).__name__] += 1
        else:
            (self.before if due_at < self._killed_at else self.after).append(self._loop.time() - due_at)


async def fill(uri: str, count: int) -> None:
    driver = await open_driver(uri)
    try:
        await driver.init_cluster()
        closed = LedgerMetadata(3, 3, 2, (Fragment(0, ("b1", "b2", "b3")),)).closed(9999, 10**6)
        for _ in range(0, count, AT_ONCE):
            await asyncio.gather(*(driver.create_ledger(closed) for _ in range(AT_ONCE)))
    finally:
        await driver.close()


def plan(kind: str, uri: str, count: int) -> Planned:
    reader = LedgerSourceReader(LedgerOptions(uri), COLUMNS.struct(COLUMNS.names, None))
    wall, cpu = time.perf_counter(), time.process_time()
    partitions = reader.partitions()
    run = Planned(kind, count, time.process_time() - cpu, time.perf_counter() - wall)
    assert sum(len(each.partition.ranges) for each in partitions) >= count
    return run


def markdown(results: command.Results) -> str:
    machine, size = results["machine"], results["size"]
    head = [
        "metadata", "p50 before / after", "p99 before / after", "longest", "ended", "longest turn", "full collection",
        "objects an idle ledger", "client's CPU", "load average",
    ]  # fmt: skip
    rows = [
        [
            run.metadata,
            f"{run.before.p50_ms:.0f} / {run.after.p50_ms:.0f} ms",
            f"{run.before.p99_ms:.0f} / {run.after.p99_ms:.0f} ms",
            f"{run.after.max_ms:.0f} ms",
            f"{run.failed_writers}",
            f"{run.longest_turn_ms:.0f} ms",
            f"{run.longest_collection_ms:.0f} ms",
            f"{run.objects_per_ledger:.0f}",
            f"{run.cpu_s:.1f} s",
            f"{run.load:.1f}",
        ]
        for run in results["lost"]
    ]
    plans = [
        [one.metadata, f"{one.ledgers:,}", f"{one.cpu_s:.1f} s", f"{one.wall_s:.1f} s"] for one in results["planned"]
    ]
    return "\n".join(
        [
            f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; {size.open_ledgers:,} ledgers "
            f"open in one client, {RATE:,} appends/s, one of {BOOKIES} bookies killed:",
            "",
            grid(head, rows),
            "",
            "The plan of a Spark query over closed ledgers:",
            "",
            grid(["metadata", "ledgers", "CPU", "wall"], plans),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
