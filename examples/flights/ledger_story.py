"""The first half: rows go into ledgers; a bookie dies and returns; a writer dies, and another client recovers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import tallystick
from examples.flights.acks import read_log
from examples.flights.processes import WriterProcess
from examples.flights.story import Run, Stage


@dataclass
class LedgerRun(Run):
    steps: list[str] = field(default_factory=list)  # of the recovery
    ensemble_changes: list[str] = field(default_factory=list)
    ledgers: list[int] = field(default_factory=list)


async def ensemble(uri: str, ledger: int) -> tuple[str, ...]:
    """The bookies that the ledger is written to now."""
    async with tallystick.connect(uri) as client:
        return (await client.ledger_metadata(ledger)).ensemble


async def recover(uri: str, ledger: int, explain: Callable[[tallystick.Event], None]) -> int:
    """Fence and close the ledger of a dead writer (Q10 to Q16); the highest row in it, or -1."""
    async with tallystick.connect(uri, events=tallystick.Events(explain)) as client:
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
class LedgerStory:
    stage: Stage
    uri: str
    run: LedgerRun = field(default_factory=LedgerRun)

    def play(self) -> LedgerRun:
        """Write with a bookie dying and returning, kill the writer, recover, go on in a new ledger."""
        stage, run = self.stage, self.run
        logs = [stage.cluster.folder / f"writer-{number}.log" for number in (1, 2)]
        with WriterProcess(self.uri, logs[0], 0, stage.rows, stage.rate) as writer:
            stage.mark(run, "writer 1 starts")
            self._first_act(writer)
        self._recovery(logs[0])
        resumed = run.resumed_at
        with WriterProcess(self.uri, logs[1], resumed, stage.rows, stage.rate) as successor:
            stage.mark(run, f"writer 2 resumes at row {resumed:,}")
            successor.allow(stage.rows)
            successor.wait_for(lambda rows: rows >= stage.rows - resumed, lambda rows: stage.show(resumed + rows))
            successor.finish()
        stage.mark(run, "writer 2 closed its last ledger")
        run.acked = [each for log in logs for each in read_log(log).runs]
        run.ledgers, run.ensemble_changes = asyncio.run(survey(self.uri))
        return run

    def _first_act(self, writer: WriterProcess) -> None:
        stage, run = self.stage, self.run
        writer.allow(stage.rows * 0.4)
        writer.wait_for(lambda rows: rows >= stage.rows * 0.2, stage.show)
        victim = asyncio.run(ensemble(self.uri, read_log(writer.log).parts[-1]))[0]
        stage.cluster.tally("dev", "kill", victim)
        stage.mark(run, f"{victim} killed (kill -9)")
        writer.allow(stage.rows * 0.7)
        writer.wait_for(lambda rows: rows >= stage.rows * 0.45, stage.show)
        stage.cluster.tally("dev", "restart", victim)
        stage.mark(run, f"{victim} restarted")
        writer.wait_for(lambda rows: rows >= stage.rows * 0.55, stage.show)
        writer.kill()
        stage.mark(run, "writer 1 killed (kill -9)")

    def _recovery(self, log: Path) -> None:
        stage, run, content = self.stage, self.run, read_log(log)
        ledger = content.parts[-1]
        started = time.time()

        def explain(event: tallystick.Event) -> None:
            run.steps.append(f"+{(time.time() - started) * 1000:6.1f} ms  {event}")
            stage.tell(f"  {run.steps[-1]}")

        stage.mark(run, f"another client recovers ledger {ledger}")
        last_row = asyncio.run(recover(self.uri, ledger, explain))
        if not run.steps:
            raise SystemExit(f"ledger {ledger} was closed already: the kill fell between two ledgers; try again")
        # An empty last ledger: everything of the ledgers before it is there, they were closed by their writer.
        before = max((each.row + each.count for each in content.runs if each.part != ledger), default=0)
        run.resumed_at = last_row + 1 if last_row >= 0 else before
        stage.mark(run, f"ledger {ledger} closed")
