"""What a trigger of a streaming query costs: how far everything reaches is asked, and a batch is decided.

    python bench/triggers.py [--quick] [--json FILE] [--docs FILE]

The planner of a query, as Spark's planner process has it, with three bookies and a master of this machine. A trigger is
what Spark asks of it: the next offset, and the newest one with the lag. Idle: nothing is new. Busy: one message is, and
the partitions of its batch are planned, too. Every log has an owner that is idle, and an open ledger. CPU is that of
the process with the planner; that of bookies, brokers and metadata is not in it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import command
from machine import describe
from report import grid
from stream_loads import list_closed

import tallystick
from tallystick.admin.brokers import operator
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState
from tallystick.admin.topics import create_topic
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.planner import planner as ledger_planner
from tallystick.pipeline.planner import QueryPlanner
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.planner import planner as stream_planner
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.planner import planner as topic_planner
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.rocketmq.wire.values import MessageQueue

FOLDER, TOPIC = "bench/triggers/persistent", "wide"
AT_ONCE = 100  # streams that are opened together
SEEN_S = 0.3  # after which an idle owner has told of its last entry
PATIENCE_S = 60.0
# From there on each trigger has what is new: a query that begins at the latest has an empty first batch.
FIRST = {"startingOffsets": "earliest"}
PAYLOAD = b"x" * 100

Planner = QueryPlanner[Any, Any, Any]
Add = Callable[[], Awaitable[object]]  # one message


@dataclass(frozen=True)
class Size:
    streams: tuple[int, ...]
    ledgers: int  # of one stream
    queues: int  # of one topic
    rounds: int


QUICK, FULL = Size((1, 100), 1_000, 100, 10), Size((1, 100, 10_000), 10_000, 1_000, 20)


@dataclass(frozen=True)
class Triggers:
    name: str
    idle_ms: list[float]
    idle_cpu_ms: list[float]
    busy_ms: list[float]
    busy_cpu_ms: list[float]


def main() -> int:
    return command.run(__doc__, "no 10,000 streams: half a minute", measure, markdown, place="triggers")


def measure(quick: bool) -> command.Results:
    size, load = QUICK if quick else FULL, os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        cluster = DevCluster(folder)
        state = cluster.up(3, "1")
        try:
            results = asyncio.run(_all(state, size))
        finally:
            cluster.down()
    return {"machine": describe(Path(tempfile.gettempdir())), "load": load, "triggers": results}


async def _all(state: DevState, size: Size) -> list[Triggers]:
    results = []
    async with tallystick.connect(state.uri) as bk:
        name = f"{FOLDER}/long"
        await list_closed(bk, name, size.ledgers)
        async with bk.open_stream(name) as stream:
            options = {**FIRST, "uri": state.uri, "subscribe": name}
            planner = stream_planner(StreamSourceOptions.parse(options, {}, follows=True))
            title = f"a stream with {size.ledgers:,} ledgers"
            results.append(await _triggers(title, planner, lambda: stream.append(PAYLOAD), size))
        async with bk.create_ledger(3, write_quorum=2, ack_quorum=2) as writer:
            options = {**FIRST, "uri": state.uri, "ledgers": str(writer.id)}
            named = ledger_planner(LedgerOptions.parse(options, {}, follows=True))
            results.append(await _triggers("a ledger", named, lambda: writer.append(PAYLOAD), size))
            every = ledger_planner(LedgerOptions.parse({**FIRST, "uri": state.uri}, {}, follows=True))
            title = f"all ledgers, of {size.ledgers:,} one open"
            results.append(await _triggers(title, every, lambda: writer.append(PAYLOAD), size))
    for count in size.streams:
        async with tallystick.connect(state.uri) as bk, _streams(bk, count) as opened:
            options = {**FIRST, "uri": state.uri, "subscribePattern": f"{FOLDER}/of-{count}-.*"}
            planner = stream_planner(StreamSourceOptions.parse(options, {}, follows=True))
            title, add = f"streams: {count:,}", partial(opened[0].append, PAYLOAD)
            results.append(await _triggers(title, planner, add, size))
    results.append(await _topic(str(state.name_server), size))
    return results


async def _topic(name_server: str, size: Size) -> Triggers:
    async with operator(name_server) as who:
        [at] = await create_topic(who, TOPIC, queues=size.queues)
    async with tallystick.topics(name_server) as mq:
        producer = mq.producer("bench")
        queue = MessageQueue(TOPIC, at.broker, size.queues // 2)
        options = {**FIRST, "nameServer": name_server, "subscribe": TOPIC}
        planner = topic_planner(TopicOptions.parse(options, {}, follows=True))
        title = f"a topic with {size.queues:,} queues"
        return await _triggers(title, planner, lambda: producer.send(TOPIC, PAYLOAD, queue=queue), size)


@asynccontextmanager
async def _streams(bk: BookKeeper, count: int) -> AsyncIterator[list[Stream]]:
    """So many, each with a message and an owner."""

    async def one(number: int) -> Stream:
        stream = await bk.open_stream(f"{FOLDER}/of-{count}-{number}")
        await stream.append(PAYLOAD)
        return stream

    opened: list[Stream] = []
    while len(opened) < count:
        numbers = range(len(opened), min(len(opened) + AT_ONCE, count))
        opened += await asyncio.gather(*(one(number) for number in numbers))
    yield opened
    for stream in opened:
        stream.abort()


async def _triggers(name: str, planner: Planner, add: Add, size: Size) -> Triggers:
    """The owners' loop goes on while the planner works in a thread, as the caller of its own loop."""
    limits, results = TriggerLimits(), Triggers(name, [], [], [], [])
    await asyncio.sleep(SEEN_S)
    at = await asyncio.to_thread(planner.initial)
    at = await asyncio.to_thread(planner.latest, at, limits)
    await add()
    at = await asyncio.to_thread(_news, planner, at)  # from now on it is busy: each trigger looks at it
    gc.collect()
    gc.freeze()  # the owners are not in a planner process

    def idle() -> object:
        planner.latest(at, limits)
        return planner.heads()

    def busy() -> object:
        end = planner.latest(at, limits)
        planner.heads()
        if not planner.partitions(at, end):
            raise AssertionError("a trigger did not see the message")
        return end

    for _ in range(size.rounds):
        await _timed(idle, results.idle_ms, results.idle_cpu_ms)
        await add()
        await asyncio.sleep(SEEN_S)
        at = await _timed(busy, results.busy_ms, results.busy_cpu_ms)
    await asyncio.to_thread(planner.close)
    gc.unfreeze()
    print(f"{name}: {statistics.median(results.idle_ms):.1f} ms idle", file=sys.stderr, flush=True)
    return results


def _news(planner: Planner, at: Any) -> Any:
    """A log that was quiet is looked at once in a round."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        end = planner.latest(at, TriggerLimits())
        if planner.partitions(at, end):
            return end
        time.sleep(SEEN_S)
    raise AssertionError("no trigger of a round saw the message")


async def _timed(work: Callable[[], Any], wall_ms: list[float], cpu_ms: list[float]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    result = await asyncio.to_thread(work)
    wall_ms.append((time.perf_counter() - wall) * 1000)
    cpu_ms.append((time.process_time() - cpu) * 1000)
    return result


def markdown(results: command.Results) -> str:
    machine = results["machine"]
    head = (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; load {results['load']:.1f} before."
    )
    titles = ("what is followed", "idle ms, median (longest)", "CPU ms", "busy ms, median (longest)", "CPU ms")
    rows = []
    for each in results["triggers"]:
        cells = [each.name]
        for wall_ms, cpu_ms in ((each.idle_ms, each.idle_cpu_ms), (each.busy_ms, each.busy_cpu_ms)):
            cells.append(f"{statistics.median(wall_ms):.1f} ({max(wall_ms):.1f})")
            cells.append(f"{statistics.median(cpu_ms):.1f}")
        rows.append(cells)
    return f"{head}\n\n{grid(titles, rows)}"


if __name__ == "__main__":
    sys.exit(main())
