"""How long who uses streams waits: for another owner after a death, for a hand-over, for what another one appends."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import uvloop
from stream_loads import FOLDER, PAYLOAD

import tallystick
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position

LEASE = StreamClientSettings(lease_s=2.0)
PATIENCE_S = 60.0
OWNER_PAUSE_S = 0.01
IDLE_EVERY_S, BUSY_EVERY_S = 0.8, 0.001


@dataclass(frozen=True)
class Waits:
    """``bound_ms`` is for the median where ``of_median``, else for the longest."""

    what: str
    times_ms: list[float]
    bound_ms: float
    of_median: bool
    load: float  # average of the machine over the last minute

    @property
    def median_ms(self) -> float:
        return sorted(self.times_ms)[len(self.times_ms) // 2]

    @property
    def is_met(self) -> bool:
        return (self.median_ms if self.of_median else max(self.times_ms)) < self.bound_ms


def change_of_owner(kind: str, uri: str, rounds: int) -> Waits:
    """From ``kill -9`` of the owner's process to the first append of one who waited for the stream."""
    times = [uvloop.run(_survive(uri, f"{FOLDER}/killed-{number}")) for number in range(rounds)]
    return Waits(f"next append after the owner's kill -9, lease of 2 s, {kind}", times, 3000, False, os.getloadavg()[0])


async def _survive(uri: str, name: str) -> float:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    owner = context.Process(target=_own, args=(uri, name, there), daemon=True)
    owner.start()
    try:
        async with tallystick.connect(uri, streams=LEASE) as bk:
            await asyncio.to_thread(here.recv)  # it owns the stream, and appends
            opening = asyncio.create_task(_open(bk, name))
            await asyncio.sleep(1.0)
            killed_at = time.perf_counter()
            owner.kill()
            stream = await opening
            await stream.append(PAYLOAD)
            took = time.perf_counter() - killed_at
            await stream.close()
            return took * 1000
    finally:
        owner.kill()
        owner.join()


def _own(uri: str, name: str, there: Connection) -> None:
    """Never returns: it appends until it is killed."""

    async def work() -> None:
        async with tallystick.connect(uri, streams=LEASE) as bk:
            stream = await bk.open_stream(name)
            await stream.append(PAYLOAD)
            there.send("appended")
            while True:
                await stream.append(PAYLOAD)
                await asyncio.sleep(OWNER_PAUSE_S)

    uvloop.run(work())


async def _open(bk: BookKeeper, name: str) -> Stream:
    return await bk.open_stream(name, wait_s=PATIENCE_S)


async def hand_over(kind: str, uri: str, rounds: int) -> Waits:
    """From ``close`` of the owner to the first append of another client, which waited for the stream."""
    name, times = f"{FOLDER}/handed", []
    async with tallystick.connect(uri) as one, tallystick.connect(uri) as other:
        stream = await one.open_stream(name)
        await stream.append(PAYLOAD)
        for number in range(rounds):
            opening = asyncio.create_task(_open((other, one)[number % 2], name))
            await asyncio.sleep(0.2)
            start = time.perf_counter()
            closing = asyncio.create_task(stream.close())
            stream = await opening
            await stream.append(PAYLOAD)
            times.append((time.perf_counter() - start) * 1000)
            await closing
        await stream.close()
    return Waits(f"next append after a clean hand-over, {kind}", times, 50, True, os.getloadavg()[0])


async def tail_idle(uri: str, count: int) -> Waits:
    times = await _tail(uri, "idle", IDLE_EVERY_S, count)
    return Waits("follower, an append each 0.8 s", times, 500, False, os.getloadavg()[0])


async def tail_busy(uri: str, count: int) -> Waits:
    times = await _tail(uri, "busy", BUSY_EVERY_S, count)
    return Waits("follower, an append each ms", times, 10, True, os.getloadavg()[0])


async def _tail(uri: str, kind: str, every_s: float, count: int) -> list[float]:
    """From the hand-over of each message to its arrival, in ms."""
    name = f"{FOLDER}/followed-{kind}"
    async with tallystick.connect(uri) as owner, tallystick.connect(uri) as other:
        stream = await owner.open_stream(name)
        async with other.read_stream(name) as reader:
            sent: list[float] = []
            times: list[float] = []
            appended: list[asyncio.Future[Position]] = []

            async def follow() -> None:
                async for _ in reader.read(follow=True):
                    times.append((time.perf_counter() - sent[len(times)]) * 1000)
                    if len(times) == count:
                        return

            following = asyncio.create_task(follow())
            start = time.perf_counter()
            for number in range(count):
                await asyncio.sleep(max(0.0, start + number * every_s - time.perf_counter()))
                sent.append(time.perf_counter())
                appended.append(stream.append_nowait(PAYLOAD))
            await asyncio.gather(*appended)
            await following
        await stream.close()
    return times
