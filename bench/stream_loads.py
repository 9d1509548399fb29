"""What is asked of streams, each in a process of its own (``alone``): appends, idle owners, cursors, long lists."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import uvloop
from machine import Meter, resident_mb

import tallystick
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.managed_ledgers import encode_stream
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata

WRITER, STREAM, RAW = "LedgerWriter", "stream", "raw stream"
FOLDER = "bench/streams/persistent"
PAYLOAD, WINDOW = b"x" * 100, 1000
OPENED_AT_ONCE = 200
SETTLE_S = 2.0  # explicit LACs of streams that were just appended to
ESTABLISHED = "01"  # a state in /proc/net/tcp

T = TypeVar("T")


class Target(Protocol):
    def append_nowait(self, data: bytes) -> asyncio.Future[Any]: ...


@dataclass(frozen=True)
class Idle:
    """What a process costs whose targets have one acknowledged append each, and then do nothing."""

    before_mb: float  # of a client that is connected
    resident_mb: float
    timers: int
    tasks: int
    connections: int
    cpu_ms_per_s: float


@dataclass(frozen=True)
class Appends:
    """CPU is per append; ``bookies_us``: of all of them together."""

    side: str
    targets: int
    count: int
    rate: float
    client_us: float
    bookies_us: float
    open_ms: float  # the client's CPU to open one and append to it once
    idle: Idle
    others_cores: float


@dataclass(frozen=True)
class Acks:
    how: str
    count: int
    rate: float
    client_us: float


@dataclass(frozen=True)
class LongList:
    """CPU is the client's, of one call."""

    ledgers: int
    list_bytes: int
    open_ms: float
    open_cpu_ms: float
    append_ms: float  # one in flight
    append_cpu_us: float
    roll_over_cpu_ms: float
    read_cpu_ms: float  # to open it as a reader


def alone(work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    """What ``work`` returns in a new process, on a loop of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_run, work, *arguments).result()


def _run(work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    return uvloop.run(work(*arguments))


async def keep_appending(targets: Sequence[Target], count: int, window: int = WINDOW) -> None:
    """Append to one after the other, with a window of unanswered appends over all of them."""
    pending: deque[asyncio.Future[Any]] = deque()
    for number in range(count):
        if len(pending) >= window:
            await pending.popleft()
        pending.append(targets[number % len(targets)].append_nowait(PAYLOAD))
    while pending:
        await pending.popleft()


async def appends(uri: str, side: str, targets: int, count: int, idle_s: float, bookies: list[int]) -> Appends:
    async with tallystick.connect(uri) as bk:
        gc.collect()
        before_mb, cpu = resident_mb(os.getpid()), time.process_time()
        opened = await _open(bk, side, targets)
        open_ms = (time.process_time() - cpu) / targets * 1000
        idle = await _idle(before_mb, idle_s)
        await keep_appending(opened, max(2 * targets, count // 10))  # warms
        meter, client = Meter(bookies), time.process_time()
        await keep_appending(opened, count)
        client = time.process_time() - client
        meter.stop()
        spent = sum(meter.cpu[pid] for pid in bookies)
        for target in opened:
            target.abort()
        return Appends(
            side,
            targets,
            count,
            count / meter.seconds,
            client / count * 1e6,
            spent / count * 1e6,
            open_ms,
            idle,
            meter.others_cores,
        )


async def _open(bk: BookKeeper, side: str, count: int) -> list[Stream | LedgerWriter]:
    settings = StreamSettings(entry_format="raw" if side == RAW else "pulsar")

    async def one(number: int) -> Stream | LedgerWriter:
        if side == WRITER:
            target: Stream | LedgerWriter = await bk.create_ledger(3, write_quorum=2, ack_quorum=2)
        else:
            target = await bk.open_stream(f"{FOLDER}/{side[:3]}-{count}-{number}", settings=settings)
        await target.append(PAYLOAD)
        return target

    opened: list[Stream | LedgerWriter] = []
    while len(opened) < count:
        last = min(count, len(opened) + OPENED_AT_ONCE)
        opened += await asyncio.gather(*(one(number) for number in range(len(opened), last)))
    return opened


async def _idle(before_mb: float, seconds: float) -> Idle:
    await asyncio.sleep(SETTLE_S)
    gc.collect()
    size = resident_mb(os.getpid())
    cpu = time.process_time()
    await asyncio.sleep(seconds)
    cpu = time.process_time() - cpu
    timers = sum(type(each).__name__ == "TimerHandle" and not each.cancelled() for each in gc.get_objects())
    return Idle(before_mb, size, timers, len(asyncio.all_tasks()) - 1, connections(), cpu / seconds * 1000)


def connections() -> int:
    """How many TCP connections this process has."""
    own = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == ESTABLISHED and f"socket:[{row[9]}]" in own for row in rows)


async def acks(uri: str, count: int) -> list[Acks]:
    """Of each way so many, one after the other but where it is said."""
    name = f"{FOLDER}/acked"
    async with tallystick.connect(uri) as bk, bk.open_stream(name) as stream:
        await keep_appending([stream], 5 * count)
        async with bk.cursor(name, "bench") as cursor:
            messages: list[StreamMessage] = []
            while len(messages) < 5 * count:
                messages += await cursor.read(5 * count)

            async def one_by_one(some: list[StreamMessage]) -> None:
                for message in some:
                    await cursor.ack(message)

            async def together(some: list[StreamMessage]) -> None:
                for first in range(0, len(some), WINDOW):
                    await asyncio.gather(*(cursor.ack(message) for message in some[first : first + WINDOW]))

            async def in_batches(some: list[StreamMessage]) -> None:
                for first in range(0, len(some), WINDOW):
                    await cursor.ack_batch(some[first : first + WINDOW])

            few = count // 10
            return [
                await _timed("one in flight", one_by_one, messages[:few]),
                await _timed("1,000 in flight", together, messages[few : few + count]),
                await _timed("batches of 1,000", in_batches, messages[few + count : few + 2 * count]),
                await _timed("1,000 in flight, every second one", together, messages[few + 2 * count :: 2][:count]),
            ]


async def _timed(
    how: str, work: Callable[[list[StreamMessage]], Awaitable[None]], messages: list[StreamMessage]
) -> Acks:
    wall, cpu = time.perf_counter(), time.process_time()
    await work(messages)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Acks(how, len(messages), len(messages) / wall, cpu / len(messages) * 1e6)


async def long_list(uri: str, ledgers: int, rounds: int, count: int) -> LongList:
    """A stream whose list has so many closed ledgers: opened, appended to and rolled over several times."""
    name = f"{FOLDER}/list-{ledgers}"
    async with tallystick.connect(uri) as bk:
        info = await list_closed(bk, name, ledgers)
        open_s, open_cpu, append_s, append_cpu, roll_cpu, read_cpu = [], [], [], [], [], []
        for _ in range(rounds):
            wall, cpu = time.perf_counter(), time.process_time()
            stream = await bk.open_stream(name)
            open_s.append(time.perf_counter() - wall)
            open_cpu.append(time.process_time() - cpu)
            await stream.append(PAYLOAD)
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                await stream.append(PAYLOAD)
            append_s.append((time.perf_counter() - wall) / count)
            append_cpu.append((time.process_time() - cpu) / count)
            cpu = time.process_time()
            await stream.roll_over()
            roll_cpu.append(time.process_time() - cpu)
            await stream.close()
            cpu = time.process_time()
            async with bk.read_stream(name):
                read_cpu.append(time.process_time() - cpu)
        return LongList(
            ledgers,
            len(encode_stream(info)),
            middle(open_s) * 1000,
            middle(open_cpu) * 1000,
            middle(append_s) * 1000,
            middle(append_cpu) * 1e6,
            middle(roll_cpu) * 1000,
            middle(read_cpu) * 1000,
        )


def middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


async def list_closed(bk: BookKeeper, name: str, ledgers: int) -> StreamInfo:
    """Make a stream that lists so many closed ledgers, which have metadata alone."""
    catalog = bk.stream_context.catalog
    now_ms = int(time.time() * 1000)
    ids = sorted(await _closed_ledgers(bk, ledgers))
    info = StreamInfo(tuple([StreamLedger(each, 50_000, 100 << 20, now_ms) for each in ids]))
    await catalog.write(name, info, (await catalog.create(name)).version)
    return info


async def _closed_ledgers(bk: BookKeeper, count: int) -> list[int]:
    driver = bk.context.driver
    closed = LedgerMetadata(3, 2, 2, (Fragment(0, ("b1", "b2", "b3")),)).closed(49_999, 100 << 20)
    ids: list[int] = []
    while len(ids) < count:
        some = min(OPENED_AT_ONCE, count - len(ids))
        made = await asyncio.gather(*(driver.create_ledger(closed) for _ in range(some)))
        ids += [each.value for each in made]
    return ids
