"""What happens during the run: the cluster, the writer processes, the faults; and a record of it for the report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tallystick
from examples.flights.acks import AckedRun, read_log
from tallystick.admin.dev import running_uri
from tallystick.runtime.events import Event, Events

TALLY = (sys.executable, "-m", "tallystick")


@dataclass(frozen=True)
class Moment:
    """Something worth a line in the report and a mark in the plot."""

    time: float  # Unix seconds
    what: str


@dataclass
class Run:
    """Everything the report needs."""

    uri: str = ""
    moments: list[Moment] = field(default_factory=list)
    acked: list[AckedRun] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)  # of the recovery
    ensemble_changes: list[str] = field(default_factory=list)
    resumed_at: int = 0
    ledgers: list[int] = field(default_factory=list)


class Cluster:
    """The local cluster, driven by the same commands that a user types."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tally(self, *words: str) -> str:
        done = subprocess.run([*TALLY, *words, "--dir", str(self.folder)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"`tally {' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def running(self, bookies: int) -> Iterator[str]:
        """The metadata URI of a fresh cluster, which is gone again afterwards."""
        self.tally("dev", "up", "--bookies", str(bookies))
        try:
            uri = running_uri(str(self.folder))
            assert uri is not None
            yield uri
        finally:
            self.tally("dev", "down")


class WriterProcess:
    """A writer as a process of its own, so that it can be killed like one."""

    def __init__(self, uri: str, log: Path, first_row: int, rows: int, rate: float) -> None:
        self.log = log
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "examples.flights.writer", "--uri", uri, "--log", str(log)),
                *("--first-row", str(first_row), "--rows", str(rows), "--rate", str(rate)),
            ]
        )

    def wait_for(self, done: Callable[[int], bool], tick: Callable[[int], None]) -> None:
        """Until ``done(rows acknowledged)``; ``tick`` is called with that number on the way."""
        while not done(rows := read_log(self.log).rows):
            tick(rows)
            if self._process.poll() not in (None, 0):
                raise SystemExit(f"the writer failed with exit code {self._process.returncode}; its log: {self.log}")
            if self._process.returncode == 0 and not done(read_log(self.log).rows):
                raise SystemExit(f"the writer ended early; its log: {self.log}")
            time.sleep(0.05)
        tick(read_log(self.log).rows)

    def finish(self) -> None:
        if self._process.wait():
            raise SystemExit(f"the writer failed with exit code {self._process.returncode}; its log: {self.log}")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self.kill()


async def ensemble(uri: str, ledger: int) -> tuple[str, ...]:
    """The bookies that the ledger is written to now."""
    async with tallystick.connect(uri) as client:
        return (await client.ledger_metadata(ledger)).ensemble


async def recover(uri: str, ledger: int, explain: Callable[[Event], None]) -> int:
    """Fence and close the ledger of a dead writer (Q10 to Q16); the highest row in it, or -1."""
    async with tallystick.connect(uri, events=Events(explain)) as client:
        reader = await client.open_ledger(ledger, recover=True)
        if reader.last_entry < 0:
            return -1
        async for entry in reader.read(reader.last_entry, reader.last_entry):
            return int(json.loads(entry.data)["row"])
    return -1


async def survey(uri: str) -> tuple[list[int], list[str]]:
    """All ledgers of this application, and their ensemble changes in words."""
    ledgers, changes = [], []
    async with tallystick.connect(uri) as client:
        async for ledger in client.ledgers():
            metadata = await client.ledger_metadata(ledger)
            if metadata.custom.get("application") != b"flights":
                continue
            ledgers.append(ledger)
            for before, after in zip(metadata.fragments, metadata.fragments[1:], strict=False):
                out = ", ".join(sorted(set(before.bookies) - set(after.bookies)))
                new = ", ".join(sorted(set(after.bookies) - set(before.bookies)))
                changes.append(f"ledger {ledger}: from entry {after.first} on, {out} replaced by {new}")
    return ledgers, changes


@dataclass
class Story:
    """The acts, in order. ``show(rows acknowledged)`` is the live progress, ``tell(text)`` one line that stays."""

    cluster: Cluster
    rows: int
    rate: float
    show: Callable[[int], None]
    tell: Callable[[str], None]
    run: Run = field(default_factory=Run)

    def mark(self, what: str) -> None:
        self.run.moments.append(Moment(time.time(), what))
        self.tell(what)

    def play(self) -> None:
        """Write with a bookie dying and returning, kill the writer, recover, go on in a new ledger."""
        first_log, second_log = self.cluster.folder / "writer-1.log", self.cluster.folder / "writer-2.log"
        writer = WriterProcess(self.run.uri, first_log, 0, self.rows, self.rate)
        self.mark("writer 1 starts")
        try:
            self._first_act(writer)
        finally:
            writer.stop()
        self._recovery(first_log)
        successor = WriterProcess(self.run.uri, second_log, self.run.resumed_at, self.rows, self.rate)
        self.mark(f"writer 2 resumes at row {self.run.resumed_at:,}")
        try:
            resumed = self.run.resumed_at
            successor.wait_for(lambda rows: rows >= self.rows - resumed, lambda rows: self.show(resumed + rows))
            successor.finish()
        finally:
            successor.stop()
        self.mark("writer 2 closed its last ledger")
        self.run.acked = [*read_log(first_log).runs, *read_log(second_log).runs]
        self.run.ledgers, self.run.ensemble_changes = asyncio.run(survey(self.run.uri))

    def _first_act(self, writer: WriterProcess) -> None:
        writer.wait_for(lambda rows: rows >= self.rows * 0.2, self.show)
        victim = asyncio.run(ensemble(self.run.uri, read_log(writer.log).ledgers[-1]))[0]
        self.cluster.tally("dev", "kill", victim)
        self.mark(f"{victim} killed (kill -9)")
        writer.wait_for(lambda rows: rows >= self.rows * 0.4, self.show)
        self.cluster.tally("dev", "restart", victim)
        self.mark(f"{victim} restarted")
        writer.wait_for(lambda rows: rows >= self.rows * 0.55, self.show)
        writer.kill()
        self.mark("writer 1 killed (kill -9)")

    def _recovery(self, log: Path) -> None:
        content = read_log(log)
        ledger = content.ledgers[-1]
        started = time.time()

        def explain(event: Event) -> None:
            self.run.steps.append(f"+{(time.time() - started) * 1000:6.1f} ms  {event}")
            self.tell(f"  {self.run.steps[-1]}")

        self.mark(f"another client recovers ledger {ledger}")
        last_row = asyncio.run(recover(self.run.uri, ledger, explain))
        # An empty last ledger: everything of the ledgers before it is there, they were closed by their writer.
        before = max((run.row + run.count for run in content.runs if run.ledger != ledger), default=0)
        self.run.resumed_at = last_row + 1 if last_row >= 0 else before
        self.mark(f"ledger {ledger} closed")
