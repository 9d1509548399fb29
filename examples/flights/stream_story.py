"""The first half: rows go into a stream; a bookie dies, others get copies of what it had, and it returns; the stream's
owner dies, and another takes over; Spark derives a second stream from it meanwhile, and its driver dies."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import pyarrow as pa

import tallystick
from examples.flights.acks import AckLogContent, read_log
from examples.flights.copies import Repair, ledgers_of, wait_until_copied
from examples.flights.data import flights
from examples.flights.processes import Patience, WriterProcess
from examples.flights.story import Run, Stage
from examples.flights.verify import NAMED
from examples.flights.writer import PRODUCER, STREAM

DELAYS = "demo/nyc/persistent/delays"  # derived from it
READ_ROWS = 1000  # compared at a time
READ_S = 600.0


@dataclass
class StreamRun(Run):
    steps: list[str] = field(default_factory=list)  # of the change of owner
    away_s: float = 0.0  # from the owner's death to the next one's first acknowledgement
    in_doubt: int = 0  # rows that were stored and not acknowledged when the owner died
    ensemble_changes: list[str] = field(default_factory=list)
    ledgers: list[int] = field(default_factory=list)
    messages: int = 0  # that the stream has
    unlike: int = 0  # of them: those whose key, event time, number or bytes are not the source's
    unlike_at: list[str] = field(default_factory=list)  # the first of these
    copied_ledgers: int = 0  # of which others got the dead bookie's entries while it was away
    copied_s: float = 0.0  # from its death until then

    @property
    def copies(self) -> str:
        count = self.copied_ledgers
        return f"{count} ledger{'' if count == 1 else 's'}, {self.copied_s:.0f} s after its death"


async def ensemble(uri: str, ledger: int) -> tuple[str, ...]:
    """The bookies that the ledger is written to now."""
    async with tallystick.connect(uri) as client:
        return (await client.ledger_metadata(ledger)).ensemble


async def read_back(client: tallystick.BookKeeper, source: pa.Table, run: StreamRun) -> None:
    """Read the whole stream as anybody can, and compare each message with the source's row of that number."""
    wanted = (flight for batch in flights(source, 0, READ_ROWS) for flight in batch)
    ledgers: dict[int, None] = {}
    async with client.read_stream(STREAM) as reader:
        async for message in reader.read():
            found = message.data, message.key, message.event_time, message.producer, message.sequence
            flight = next(wanted, None)
            if flight is None or found != (*flight, PRODUCER, run.messages):
                run.unlike += 1
                if run.unlike <= NAMED:
                    run.unlike_at.append(str(message.position))
            run.messages += 1
            ledgers[message.position.ledger] = None
    run.ledgers = list(ledgers)


async def ensemble_changes(uri: str, ledger: int) -> list[str]:
    """The ensemble changes of a ledger in words."""
    changes = []
    async with tallystick.connect(uri) as client:
        metadata = await client.ledger_metadata(ledger)
    for before, after in zip(metadata.fragments, metadata.fragments[1:], strict=False):
        out = ", ".join(sorted(set(before.bookies) - set(after.bookies)))
        new = ", ".join(sorted(set(after.bookies) - set(before.bookies)))
        changes.append(f"ledger {ledger}: from entry {after.first} on, {out} replaced by {new}")
    return changes


@dataclass
class StreamStory:
    stage: Stage
    uri: str
    source: pa.Table
    run: StreamRun = field(default_factory=StreamRun)
    _told: int = 0  # steps of the second owner
    _killed: float = 0.0

    def play(self) -> StreamRun:
        """Publish with a bookie dying and returning; kill the owner while another one waits for the stream."""
        stage, run = self.stage, self.run
        logs = [stage.cluster.folder / f"owner-{number}.log" for number in (1, 2)]
        with (
            Repair(self.uri, stage.cluster.folder / "repair.log"),
            WriterProcess(self.uri, "owner-1", logs[0], None, stage.rows, stage.rate) as owner,
        ):
            stage.mark(run, f"owner-1 opens the stream {STREAM}")
            self._start_query(owner)
            self._first_act(owner)
            with WriterProcess(self.uri, "owner-2", logs[1], logs[0], stage.rows, stage.rate) as successor:
                successor.wait_for_log(lambda log: bool(log.steps), lambda log: None)
                stage.mark(run, f"owner-2 waits: {read_log(logs[1]).steps[0].text}")
                self._told = 1
                owner.kill()
                self._killed = time.time()
                stage.mark(run, "owner-1 killed (kill -9)")
                self._second_act(successor, read_log(logs[0]).rows)
        stage.mark(run, "owner-2 closed the stream")
        run.acked = [each for log in logs for each in read_log(log).runs]
        asyncio.run(self._survey())
        stage.tell(f"the stream is read back: {run.messages:,} messages")
        return run

    def _start_query(self, owner: WriterProcess) -> None:
        stage = self.stage
        owner.allow(stage.rows * 0.4)
        owner.wait_for(lambda rows: rows > 0, stage.show)
        checkpoint, place = stage.cluster.folder / "delays-checkpoint", {"source": STREAM, "target": DELAYS}
        stage.spark.follow(checkpoint, do="derive", uri=self.uri, batch_rows=stage.batch_rows, **place)

    def _first_act(self, owner: WriterProcess) -> None:
        stage, run = self.stage, self.run
        owner.wait_for(lambda rows: rows >= stage.rows * 0.2, stage.show)
        ledger = read_log(owner.log).runs[-1].part
        victim = asyncio.run(ensemble(self.uri, ledger))[0]
        stage.cluster.tally("dev", "kill", victim)
        killed_at = time.time()
        run.copied_ledgers = len(asyncio.run(ledgers_of(self.uri, victim, written=True)))
        stage.mark(run, f"{victim} killed (kill -9)")
        owner.allow(stage.rows * 0.7)
        self._await_change(owner, ledger)
        owner.wait_for(lambda rows: rows >= stage.rows * 0.45, stage.show)
        wait_until_copied(self.uri, victim, lambda: stage.show(read_log(owner.log).rows))
        run.copied_s = time.time() - killed_at
        stage.mark(run, f"others have what {victim} had: {run.copies}")
        stage.cluster.tally("dev", "restart", victim)
        stage.mark(run, f"{victim} restarted")
        owner.wait_for(lambda rows: rows >= stage.rows * 0.5, stage.show)

    def _await_change(self, owner: WriterProcess, ledger: int) -> None:
        """Wait until another bookie has the dead one's place: once the copies are made good, it had it ever."""
        patience = Patience("the owner, whose bookie is dead,")
        while not (changes := asyncio.run(ensemble_changes(self.uri, ledger))):
            rows = read_log(owner.log).rows
            patience.tell(rows)
            self.stage.show(rows)
        self.run.ensemble_changes = changes

    def _second_act(self, successor: WriterProcess, acknowledged: int) -> None:
        """The next owner takes the stream over, and publishes the rest."""
        stage, run = self.stage, self.run
        rest = stage.rows - acknowledged
        held_at = acknowledged + rest // 2  # until Spark's driver has died
        successor.allow(held_at)
        successor.wait_for_log(lambda log: bool(log.runs), self._tell_steps)
        taken = read_log(successor.log)
        run.resumed_at, run.in_doubt = taken.resumed_at, taken.resumed_at - acknowledged
        run.away_s = taken.runs[0].time - self._killed
        stage.mark(run, f"owner-2 goes on at row {run.resumed_at:,}, {run.away_s:.2f} s after the kill")
        successor.wait_for(lambda rows: rows >= rest / 4, lambda rows: stage.show(acknowledged + rows))
        stage.kill_driver(run, successor, held_at, acknowledged)
        successor.allow(stage.rows)
        successor.wait_for(lambda rows: rows >= rest, lambda rows: stage.show(acknowledged + rows))
        successor.finish()

    def _tell_steps(self, log: AckLogContent) -> None:
        """What the next owner does before its first acknowledgement, in ms since the kill."""
        until = log.runs[0].time if log.runs else float("inf")
        for step in log.steps[self._told :]:
            if step.time <= until:
                self.run.steps.append(f"+{(step.time - self._killed) * 1000:7.1f} ms  {step.text}")
                self.stage.tell(f"  {self.run.steps[-1]}")
        self._told = len(log.steps)

    async def _survey(self) -> None:
        async with asyncio.timeout(READ_S), tallystick.connect(self.uri) as client:
            await read_back(client, self.source, self.run)
