"""What happens during the run, act by act; and a record of it for the report."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import tallystick
from examples.flights.acks import AckedRun, read_log
from examples.flights.processes import Cluster, WriterProcess
from tallystick.runtime.events import Event, Events


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
        with WriterProcess(self.run.uri, first_log, 0, self.rows, self.rate) as writer:
            self.mark("writer 1 starts")
            self._first_act(writer)
        self._recovery(first_log)
        resumed = self.run.resumed_at
        with WriterProcess(self.run.uri, second_log, resumed, self.rows, self.rate) as successor:
            self.mark(f"writer 2 resumes at row {resumed:,}")
            successor.wait_for(lambda rows: rows >= self.rows - resumed, lambda rows: self.show(resumed + rows))
            successor.finish()
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
