"""The programs that write a simulated stream by sinks: drivers, which commit, and executors, which write the parts.

A driver goes on behind the last batch of its application's checkpoint, which is told of a batch after its commit. It is
restarted, is given up in a commit, comes back when it is over, or has lost its checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.splice.attempt import SinkTicket
from tallystick.bookkeeper.stream.splice.sink import StreamSink
from tallystick.errors import CheckpointLost, NoSuchStream, StreamFenced, StreamOwned, TallyError
from tallystick.sim.sinks_judge import Part, SinksJudge
from tallystick.sim.sinks_plan import ApplicationPlan, SinksPlan
from tallystick.sim.streams_list_judge import NAME
from tallystick.sim.streams_owner import LEAST_PAUSE_S
from tallystick.sim.streams_shared import AGAIN_S, FUTILE, Shared

WRITTEN_S = 2.0  # in which a part is written, or it is tried again
LOOK_S = 0.02  # at jobs
ATTEMPTS = 3  # at a part


@dataclass(eq=False)
class Job:
    """A part that some executor is to write."""

    ticket: SinkTicket
    part: Part
    is_done: bool = False
    has_failed: bool = False


@dataclass(eq=False)
class Checkpoint:
    """What an application remembers: who it is, and the last batch that it knows to be stored."""

    query: str
    batch: int = -1
    starts: int = 0


@dataclass(eq=False)
class Sinks:
    """What the programs share."""

    shared: Shared
    judge: SinksJudge
    plan: SinksPlan
    checkpoints: dict[str, Checkpoint]
    jobs: list[Job] = field(default_factory=list)


async def execute(sinks: Sinks, client: BookKeeper) -> None:
    """Write parts, two at once at most, until the faults have ended."""
    rng, writing = sinks.shared.chance(), dict[asyncio.Task[None], None]()
    while not sinks.shared.is_over.is_set():
        while sinks.jobs and len(writing) < 2:
            task = asyncio.get_running_loop().create_task(write(sinks, client, sinks.jobs.pop(0), rng))
            writing[task] = None
            task.add_done_callback(writing.pop)
        await asyncio.sleep(LOOK_S)
    await asyncio.gather(*writing)


async def write(sinks: Sinks, client: BookKeeper, job: Job, rng: random.Random) -> None:
    """Write a part."""
    part = job.part
    try:
        async with client.sink_attempt(job.ticket, part.batch, part.partition, part.attempt) as attempt:
            if rng.random() < 0.5:
                await attempt.append_batch([row.data for row in part.rows])
            else:
                for row in part.rows:
                    await attempt.append(row.data)
            sinks.judge.wrote(part, await attempt.close())
        job.is_done = True
    except FUTILE:
        job.has_failed = True


async def sweep_by_hand(sinks: Sinks, client: BookKeeper) -> None:
    """Sweep now and then, as an operator does."""
    rng = sinks.shared.chance()
    while not sinks.shared.is_over.is_set():
        with contextlib.suppress(NoSuchStream, *FUTILE):
            await client.sweep_sinks(NAME)
        await asyncio.sleep(AGAIN_S * rng.random())


async def drive(sinks: Sinks, plan: ApplicationPlan, name: str, client: BookKeeper) -> None:
    """Run the query again and again, until the faults have ended."""
    driver = Driver(sinks, plan, name, client)
    while not sinks.shared.is_over.is_set():
        if (sink := await driver.begin()) is None:
            await asyncio.sleep(AGAIN_S * driver.random.random())
        else:
            await driver.work(sink)
    await driver.end()


class Driver:
    """One driver of an application."""

    def __init__(self, sinks: Sinks, plan: ApplicationPlan, name: str, client: BookKeeper) -> None:
        self._sinks, self._plan, self._name, self._client = sinks, plan, name, client
        self._shared, self._judge = sinks.shared, sinks.judge
        self.random = sinks.shared.chance()
        self._checkpoint = sinks.checkpoints[plan.name]
        self._old: StreamSink | None = None
        self._zombies: dict[asyncio.Task[bool], None] = {}
        self._run = ""  # that is to begin, when the last start of it failed

    async def begin(self) -> StreamSink | None:
        """Begin a run. Returns None if that failed."""
        application, judge, checkpoint, rng = self._plan.name, self._judge, self._checkpoint, self.random
        query = checkpoint.query
        if judge.applications[application].told is not None and rng.random() < self._plan.loses_checkpoint:
            query = f"another than {query}"
        if not self._run or rng.random() < 0.5:
            checkpoint.starts += 1
            self._run = f"{self._name}.{checkpoint.starts}"
        before = judge.batch(application)
        try:
            sink = await self._client.open_sink(
                NAME, application, query, run=self._run, switch=rng.random() < 0.5, settings=self._shared.settings
            )
        except CheckpointLost as error:
            judge.lost(application, query, error)
            return None
        except (StreamOwned, StreamFenced) as error:
            judge.refused_run(application, self._run, error)
            self._run = ""
            return None
        except FUTILE:
            return None
        judge.begun(application, query, self._run, before=before, batch=sink.batch)
        self._run = ""
        return sink

    async def work(self, sink: StreamSink) -> None:
        """Commit batches, until another run goes on or is to begin."""
        plan, rng, checkpoint = self._plan, self.random, self._checkpoint
        number = checkpoint.batch + 1
        while not self._shared.is_over.is_set():
            if rng.random() < plan.sweeps:
                with contextlib.suppress(*FUTILE):
                    await sink.sweep()
            batch = checkpoint.batch if checkpoint.batch >= 0 and rng.random() < plan.repeats else number
            parts = await self.write_parts(sink, batch)
            if parts is not None:
                if not await self._commit(sink, batch, parts):
                    break
                checkpoint.batch = max(checkpoint.batch, batch)
                number = max(number, batch + 1)
            if self._old is not None and rng.random() < plan.zombies:
                task = asyncio.get_running_loop().create_task(self._commit_old(self._old, number))
                self._zombies[task] = None
                task.add_done_callback(self._zombies.pop)
            if rng.random() < plan.trims:
                with contextlib.suppress(StreamOwned, StreamFenced, *FUTILE):
                    await sink.trim()
            await asyncio.sleep(LEAST_PAUSE_S + plan.pause_s * rng.random())
            if rng.random() < plan.restarts:
                break
        self._old = sink
        await asyncio.sleep(AGAIN_S * rng.random())

    async def _commit_old(self, sink: StreamSink, number: int) -> bool:
        """Do as a driver that was away for a while."""
        parts = await self.write_parts(sink, number)
        return parts is not None and await self.commit(sink, number, parts)

    async def write_parts(self, sink: StreamSink, batch: int) -> list[Part] | None:
        """Have executors write a batch. Returns None if they did not."""
        count = self.random.randint(0, self._plan.partitions)
        writing = [asyncio.get_running_loop().create_task(self._write_part(sink, batch, n)) for n in range(count)]
        parts = [await task for task in writing]
        return None if None in parts else [part for part in parts if part is not None]

    async def _write_part(self, sink: StreamSink, batch: int, partition: int) -> Part | None:
        rng, jobs, clock = self.random, list[Job](), asyncio.get_running_loop()
        rows = rng.randint(0, self._plan.rows)
        for attempt in range(ATTEMPTS):
            for _ in range(2 if rng.random() < self._plan.doubles else 1):
                part = self._judge.part(sink.ticket.application, sink.ticket.run, batch, partition, attempt, rows)
                jobs.append(Job(sink.ticket, part))
                self._sinks.jobs.append(jobs[-1])
            until = clock.time() + WRITTEN_S
            while clock.time() < until and not all(job.has_failed for job in jobs):
                if (job := next((job for job in jobs if job.is_done), None)) is not None:
                    return job.part
                await asyncio.sleep(LOOK_S)
            if self._shared.is_over.is_set():
                break
        return None

    async def _commit(self, sink: StreamSink, batch: int, parts: list[Part]) -> bool:
        """Commit, or give up while that is under way."""
        if self.random.random() >= self._plan.abandons:
            return await self.commit(sink, batch, parts)
        task = asyncio.get_running_loop().create_task(self.commit(sink, batch, parts))
        await asyncio.wait([task], timeout=0.05 * self.random.random())
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return False

    async def commit(self, sink: StreamSink, batch: int, parts: list[Part]) -> bool:
        """Commit until that is known. Returns False if another run is to begin."""
        ticket, judge = sink.ticket, self._judge
        for _ in range(ATTEMPTS):
            commit = judge.committing(ticket.application, ticket.run, batch, parts)
            try:
                result = await sink.commit(batch, [part.written for part in parts])
            except (StreamOwned, StreamFenced, CheckpointLost) as error:
                judge.refused(commit, error)
                return False
            except FUTILE as error:
                judge.refused(commit, error)
                await asyncio.sleep(AGAIN_S * self.random.random())
                continue
            judge.committed(commit, result)
            return True
        return False

    async def end(self) -> None:
        """Wait for all that is under way."""
        await asyncio.gather(*self._zombies)


async def inherit(sinks: Sinks, plan: ApplicationPlan, client: BookKeeper) -> TallyError | None:
    """Begin the last run of an application, and commit one more batch. Returns why that failed, None if it did not."""
    judge, checkpoint = sinks.judge, sinks.checkpoints[plan.name]
    run, batch = f"{plan.name} heir.{checkpoint.starts}", judge.applications[plan.name].newest + 1
    checkpoint.starts += 1
    try:
        sink = await client.open_sink(
            NAME, plan.name, checkpoint.query, run=run, switch=True, settings=sinks.shared.settings
        )
        parts = [judge.part(plan.name, run, batch, partition, 0, 2) for partition in range(2)]
        double = judge.part(plan.name, run, batch, 0, 1, 2)  # which no commit names
        jobs = [Job(sink.ticket, part) for part in (*parts, double)]
        for job in jobs:
            await write(sinks, client, job, sinks.shared.chance())
        if not all(job.is_done for job in jobs):
            return StreamFenced("its parts could not be written", stream=NAME)
        commit = judge.committing(plan.name, run, batch, parts)
        judge.committed(commit, await sink.commit(batch, [part.written for part in parts]))
        await sink.trim()
    except (StreamOwned, *FUTILE) as error:
        return error
    return None
