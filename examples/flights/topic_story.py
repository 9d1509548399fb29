"""The second half: the same rows go to a topic; its master waits for a slave, dies, returns, and dies for good. Spark
keeps a Delta table up to date with it meanwhile, and its driver dies, too.

A dead master takes no messages, and its slave takes none in its place (H3): it serves what was acknowledged. So the
sender ends with the master, and another one goes on when the master is back and the slave is in sync again.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import tallystick
from examples.flights.acks import read_log
from examples.flights.processes import SenderProcess
from examples.flights.story import Run, Stage
from tallystick.admin.brokers import operator
from tallystick.admin.ha import Replication, ha_status

TOPIC, QUEUES = "flights", 4
MASTER, SLAVE = "broker-a", "broker-a-s1"
IN_SYNC_S = 60.0


@dataclass
class TopicRun(Run):
    served: int = 0  # messages that the slave had when the master died first
    behind: str = ""  # how the slave was when the master died for good


async def replication(name_server: str) -> Replication:
    """How the slave is."""
    async with operator(name_server) as asking:
        [found] = await ha_status(asking)
        return found


def in_sync(name_server: str, since: float) -> Replication:
    """Wait until the slave has all messages, and the topics as they were ``since`` then or later (H12)."""
    deadline = time.monotonic() + IN_SYNC_S
    while time.monotonic() < deadline:
        found = asyncio.run(replication(name_server))
        age = found.metadata_age_s
        if found.in_sync and not found.behind_messages and age is not None and time.monotonic() - age > since:
            return found
        time.sleep(0.2)
    raise SystemExit(f"{SLAVE} was not in sync after {IN_SYNC_S:.0f} s: {found.why}")


async def stored(name_server: str) -> tuple[int, int]:
    """Messages in all queues, and the highest row in them (-1 for none); from the slave while the master is dead."""
    async with tallystick.topics(name_server) as mq:
        count, last_row = 0, -1
        for queue in (await mq.topic(TOPIC)).readable:
            first, end = await mq.queue_limits(queue)
            count += end - first
            if end > first:
                async for message in mq.read(queue, end - 1, end):
                    last_row = max(last_row, json.loads(message.body)["row"])
        return count, last_row


@dataclass
class TopicStory:
    stage: Stage
    name_server: str
    table: Path  # of Delta
    run: TopicRun = field(default_factory=TopicRun)

    def play(self) -> TopicRun:
        """Send with the master dying and returning; at the end only the slave is left."""
        stage, run = self.stage, self.run
        logs = [stage.cluster.folder / f"sender-{number}.log" for number in (1, 2)]
        created = time.monotonic()
        stage.cluster.tally("topic", "create", TOPIC, "--queues", str(QUEUES), "--name-server", self.name_server)
        in_sync(self.name_server, created)
        with SenderProcess(self.name_server, TOPIC, logs[0], 0, stage.rows, stage.rate) as sender:
            stage.mark(run, f"sender 1 starts: each batch is acknowledged when {SLAVE} has it too")
            place = {"name_server": self.name_server, "source": TOPIC, "target": str(self.table)}
            checkpoint = stage.cluster.folder / "delta-checkpoint"
            stage.spark.follow(checkpoint, do="keep", batch_rows=stage.batch_rows, **place)
            sender.allow(stage.rows * 0.6)
            sender.wait_for(lambda rows: rows >= stage.rows * 0.4, stage.show)
            stage.cluster.tally("dev", "kill", MASTER)
            stage.mark(run, f"{MASTER} killed (kill -9)")
            sender.allow(stage.rows)
            sender.wait_until_lost()
        self._interlude(read_log(logs[0]).rows)
        resumed = run.resumed_at
        with SenderProcess(self.name_server, TOPIC, logs[1], resumed, stage.rows, stage.rate) as successor:
            stage.mark(run, f"sender 2 resumes at row {resumed:,}")
            rest = stage.rows - resumed
            held_at = resumed + rest // 2  # until Spark's driver has died
            successor.allow(held_at)
            successor.wait_for(lambda rows: rows >= rest / 4, lambda rows: stage.show(resumed + rows))
            stage.kill_driver(run, successor, held_at, resumed)
            successor.allow(stage.rows)
            successor.wait_for(lambda rows: rows >= rest, lambda rows: stage.show(resumed + rows))
            successor.finish()
        run.behind = f"{asyncio.run(replication(self.name_server)).behind_bytes} bytes behind"
        stage.cluster.tally("dev", "kill", MASTER)
        stage.mark(run, f"{MASTER} killed for good: {SLAVE} alone has the topic now")
        run.acked = [each for log in logs for each in read_log(log).runs]
        return run

    def _interlude(self, acknowledged: int) -> None:
        """The slave alone; then the master again, and where to go on."""
        stage, run = self.stage, self.run
        run.served, _ = asyncio.run(stored(self.name_server))
        stage.mark(run, f"{SLAVE} serves {run.served:,} messages; {acknowledged:,} were acknowledged")
        stage.cluster.tally("dev", "restart", MASTER)
        stage.mark(run, f"{MASTER} restarted")
        in_sync(self.name_server, time.monotonic())
        _, last_row = asyncio.run(stored(self.name_server))
        run.resumed_at = last_row + 1
        stage.mark(run, f"{SLAVE} is in sync again")
