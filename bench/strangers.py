"""What a server's loop does under thousands of connections of strangers, and what an honest client has of it meanwhile.

    python bench/strangers.py [--quick] [--json FILE] [--docs FILE]

A broker, and then a bookie, runs in a process of its own that measures its loop: each turn by the CPU time of its
thread. Connections come from 50 hosts at once. One third sends frames of 4 MiB that never end; one asks for megabytes
and takes none of them; one asks for something small again and again, 16 times at once. Who is closed comes back. An
honest client from a host of its own sends (broker) or appends (bookie) one message after the other, from before the
crowd until after it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import command
import uvloop
from machine import anonymous_mb, busy_seconds, describe
from report import grid
from sends import send_request

import tallystick
from tallystick.admin.cluster import init
from tallystick.bookkeeper.bookie.bookie import start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.wire import v2
from tallystick.rocketmq.broker.broker import start_broker
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire.headers import PullHeader
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.rocketmq.wire.values import PullFlag, RequestCode
from tallystick.runtime.garbage import Collections
from tallystick.runtime.machine import this_machine
from tallystick.runtime.open_files import raise_limit
from tallystick.runtime.outside import Outside

MIB = 1024 * 1024
HOSTS = 50
ASKED = 16  # times at once, by who is busy
LARGE, LARGE_COUNT = 512 * 1024, 16
AFTER_S = 3.0
LOOK_S, LONG_S = 0.001, 0.03
TOPIC = "Sent"
ANSWER_S = 30.0


class Turns:
    """Turns of a loop by the CPU time of its thread. It looks each ``LOOK_S``, so a turn that takes longer is measured
    alone, with up to that of others."""

    def __init__(self) -> None:
        self._loop, self._began = asyncio.get_running_loop(), time.thread_time()
        self.clear()
        self._look()

    def clear(self) -> None:
        self.longest_s, self.long = 0.0, 0

    def _look(self) -> None:
        now = time.thread_time()
        took, self._began = now - self._began, now
        self.longest_s = max(self.longest_s, took)
        self.long += took > LONG_S
        self._loop.call_later(LOOK_S, self._look)


@dataclass(frozen=True)
class Round:
    server: str
    connections: int
    seconds: float
    longest_turn_ms: float
    long_turns: int  # above ``LONG_S``
    closed: int  # connections that the server ended, and that came back
    honest_alone_p50_ms: float
    honest_p50_ms: float
    honest_max_ms: float
    honest_count: int
    rss_mb: float  # at most
    load: float  # cores that the whole machine used


async def serve_broker(folder: str, outside: Outside) -> str:
    settings = BrokerSettings(
        f"{folder}/store", "strangers", port=0, store=StoreSettings(commit_log_file_bytes=256 * MIB)
    )
    broker = await start_broker(settings, outside)
    host, port = broker.address
    return f"{host}:{port}"


async def serve_bookie(folder: str, outside: Outside) -> str:
    home = Path(folder) / "bookie"
    settings = BookieSettings(metadata_of(folder), (f"{home}/journal",), (f"{home}/ledgers",), port=0, bookie_id="b0")
    bookie = await start_bookie(settings, outside)
    host, port = bookie.address
    return f"{host}:{port}"


def metadata_of(folder: str) -> str:
    return f"sqlite://{folder}/metadata.db"


def serve(kind: str, folder: str) -> None:
    """Print the address; then for each line that comes the longest turn since the one before, and how many were
    long."""

    async def main() -> None:
        outside = this_machine(open_files=raise_limit())
        address = await (serve_broker if kind == "broker" else serve_bookie)(folder, outside)
        Collections(outside.clock).start()  # as in a server's own process
        print(address, flush=True)
        loop, ended, measured = asyncio.get_running_loop(), asyncio.Event(), Turns()

        def asked() -> None:
            if not sys.stdin.readline():
                ended.set()
                return
            print(json.dumps([measured.longest_s, measured.long]), flush=True)
            measured.clear()

        loop.add_reader(sys.stdin, asked)
        await ended.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as a server's own process
        runner.run(main())


class Crowd:
    """Connections of strangers, each from one of ``HOSTS`` hosts; those that the server ends begin again."""

    def __init__(self, kind: str, address: str, count: int, ledger: int) -> None:
        self._kind, (self._host, port), self._count = kind, address.split(":"), count
        self._port, self._ledger, self.closed = int(port), ledger, 0

    async def run(self) -> None:
        kinds = (self._never_ends, self._takes_nothing, self._is_busy)
        await asyncio.gather(*(self._again(kinds[number % 3], number) for number in range(self._count)))

    async def _again(self, live: Callable[..., Awaitable[None]], number: int) -> None:
        source = f"127.0.1.{1 + number % HOSTS}"
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, local_addr=(source, 0), limit=65536
                )
                try:
                    await live(reader, writer)
                finally:
                    writer.close()
            self.closed += 1
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _never_ends(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((4 * MIB).to_bytes(4, "big") + (b"\0\0\1\0" if self._kind == "broker" else bytes(4)))
        for _ in range(40):
            writer.write(bytes(64 * 1024))
            await writer.drain()
            await asyncio.sleep(random.uniform(0.1, 0.4))
        await reader.readexactly(1)

    async def _takes_nothing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # transports of sockets have it
        while not writer.is_closing():
            writer.write(b"".join(self._asks_much(number) for number in range(ASKED)))
            await writer.drain()
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _is_busy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"".join(self._asks_little() for _ in range(ASKED)))
            for _ in range(ASKED):
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            await asyncio.sleep(random.uniform(0.0, 0.2))

    def _asks_much(self, number: int) -> bytes:
        if self._kind == "broker":
            return encode(pull_request(number % LARGE_COUNT))
        return v2.ReadFrame(self._ledger, number % LARGE_COUNT, None, v2.RequestFlag(0), 2).encode()

    def _asks_little(self) -> bytes:
        if self._kind == "broker":
            return encode(send_request(b"small", "Crowd"))
        return v2.ReadFrame(self._ledger, LARGE_COUNT, None, v2.RequestFlag(0), 2).encode()


def pull_request(offset: int) -> Command:
    header = PullHeader(
        consumer_group="G",
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=5000,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return request(RequestCode.PULL_MESSAGE, header.to_fields())


@contextlib.asynccontextmanager
async def broker_client(address: str, folder: str) -> AsyncIterator[tuple[Callable[[], Awaitable[None]], int]]:
    """One send, with what the crowd asks for in the broker."""
    client = RemotingClient(this_machine(), RemotingSettings())

    async def send(body: bytes = b"body") -> None:
        answer = await client.ask(address, send_request(body, TOPIC), ANSWER_S)
        assert answer.code == 0, answer.remark

    try:
        for _ in range(LARGE_COUNT):
            await send(bytes(LARGE))
        yield send, 0
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def bookie_client(address: str, folder: str) -> AsyncIterator[tuple[Callable[[], Awaitable[None]], int]]:
    """One append, with a ledger that the crowd reads."""
    async with tallystick.connect(metadata_of(folder)) as bk:
        async with bk.create_ledger(ensemble=1, write_quorum=1, ack_quorum=1) as asked:
            for size in (*[LARGE] * LARGE_COUNT, 10):
                await asked.append(bytes(size))
        async with bk.create_ledger(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:

            async def append() -> None:
                await ledger.append(b"body")

            yield append, asked.id


CLIENTS = {"broker": broker_client, "bookie": bookie_client}


async def measure(kind: str, connections: int, seconds: float, folder: str) -> Round:
    """Before the crowd comes a third as long alone; the figures are of its whole life and of some seconds behind it."""
    me = (sys.executable, __file__)
    await init(metadata_of(folder))
    serving = await asyncio.create_subprocess_exec(
        *me, "--serve", kind, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert serving.stdin and serving.stdout
    address = (await serving.stdout.readline()).decode().strip()

    async def turns() -> tuple[float, int]:
        assert serving.stdin and serving.stdout
        serving.stdin.write(b"\n")
        longest_s, count = json.loads(await serving.stdout.readline())
        return longest_s * 1000, count

    try:
        async with CLIENTS[kind](address, folder) as (work, ledger):
            alone = await timed(work, asyncio.create_task(asyncio.sleep(seconds / 3)))
            await turns()
            busy, began = busy_seconds(), time.monotonic()
            async with process(*me, "--crowd", kind, address, str(connections), str(ledger)) as crowd:
                memory: list[float] = []
                watching = asyncio.create_task(watch_memory(serving.pid, memory))
                crowded = await timed(work, asyncio.create_task(live_and_end(crowd, seconds)))
                took = time.monotonic() - began
                longest, count = await turns()
                assert crowd.stdout
                closed = int(await crowd.stdout.readline())
                watching.cancel()
            machine = (busy_seconds() - busy) / took
    finally:
        serving.stdin.close()
        await serving.wait()
    return Round(
        kind, connections, seconds, longest, count, closed, statistics.median(alone) * 1000,
        statistics.median(crowded) * 1000, max(crowded) * 1000, len(crowded), max(memory), machine,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def process(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One that is gone when this is left, however that is."""
    started = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def timed(work: Callable[[], Awaitable[None]], until: asyncio.Task[None]) -> list[float]:
    """Seconds of each, one after the other, until that task has ended."""
    times = []
    while not until.done():
        start = time.perf_counter()
        await work()
        times.append(time.perf_counter() - start)
        await asyncio.sleep(0.01)
    until.result()
    return times


async def live_and_end(crowd: asyncio.subprocess.Process, seconds: float) -> None:
    await asyncio.sleep(seconds)
    crowd.send_signal(signal.SIGTERM)
    await crowd.wait()
    await asyncio.sleep(AFTER_S)


async def watch_memory(pid: int, found: list[float]) -> None:
    while True:
        found.append(anonymous_mb(pid))
        await asyncio.sleep(0.2)


async def crowd(kind: str, address: str, count: int, ledger: int) -> None:
    """Until SIGTERM; then it prints how many connections the server ended."""
    raise_limit()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a connection that was ended
    strangers = Crowd(kind, address, count, ledger)
    running = asyncio.create_task(strangers.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    print(strangers.closed, flush=True)


def all_rounds(quick: bool) -> command.Results:
    rounds = []
    connections, seconds = (1000, 10.0) if quick else (4000, 30.0)
    for kind in CLIENTS:
        for _ in range(1 if quick else 3):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(asyncio.run(measure(kind, connections, seconds, folder)))
            print(rounds[-1], file=sys.stderr, flush=True)
    return {"machine": describe(Path(tempfile.gettempdir())), "rounds": rounds}


TITLES = {
    "connections": "connections",
    "longest_turn_ms": "longest turn, ms",
    "long_turns": "turns above 30 ms",
    "honest_alone_p50_ms": "honest alone p50, ms",
    "honest_p50_ms": "honest p50, ms",
    "honest_max_ms": "honest max, ms",
    "closed": "connections ended",
    "rss_mb": "memory at most, MB",
}


def markdown(results: command.Results) -> str:
    """Each round: the worst is what counts."""
    rows = [[one.server, *(f"{getattr(one, name):,.4g}" for name in TITLES)] for one in results["rounds"]]
    return grid(["server", *TITLES.values()], rows)


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--serve", nargs=2)
    parser.add_argument("--crowd", nargs=4)
    own, _ = parser.parse_known_args()
    if own.serve:
        serve(*own.serve)
        return 0
    if own.crowd:
        kind, address, count, ledger = own.crowd
        asyncio.run(crowd(kind, address, int(count), int(ledger)))
        return 0
    return command.run(__doc__, "1,000 connections, one round each", all_rounds, markdown, place="strangers")


if __name__ == "__main__":
    sys.exit(main())
