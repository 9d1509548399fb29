"""Appends to a stream of ours beside sends to a topic of a Pulsar broker with the original's bookies.

Both have three bookies, 3/2/2, and a root of their own in one ZooKeeper; sides take turns. A client is a new process in
each round, and has warmed up before its round begins.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import uvloop
from field import BIG_HEAP, Peers
from ledger_sides import BEST_BOOKIE
from machine import Meter
from report import OURS, Round
from stream_loads import FOLDER

import tallystick
from support import java
from support.peers import Bookie, ZooKeeper
from support.pulsar import PulsarBroker
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire.stream_values import Position

PULSAR = "pulsar"
PAYLOAD = b"x" * 1024
WARM_S = 3.0
QUORUMS = {
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
}


@dataclass(frozen=True)
class Load:
    title: str
    window: int


LOADS = (Load("1 KB, one in flight", 1), Load("1 KB, 1,000 in flight", 1000))


def missing() -> str | None:
    """Why there can be no broker here; None when there can."""
    if why := java.missing():
        return why
    if find_spec("pulsar") is None:
        return "pulsar-client is not installed"
    if not java.is_cached(java.PULSAR):
        return "Pulsar is not in the cache of the interop tests"
    return None


def beside(rounds: int, seconds: float) -> list[Round]:
    return asyncio.run(_beside(rounds, seconds))


async def _beside(rounds: int, seconds: float) -> list[Round]:
    folder = Path(tempfile.mkdtemp(prefix="tally-streams-"))
    peers = Peers(java.prepare(java.BOOKKEEPER), folder / "peers")
    try:
        service = await ZooKeeper.start(peers.java, peers.folder)
        peers.peers.append(service)
        uris = {side: f"zk+hierarchical://{service.address}/{side}/ledgers" for side in (OURS, PULSAR)}
        for uri in uris.values():
            driver = await open_driver(uri)
            await driver.init_cluster()
            await driver.close()
        bookies = {
            OURS: [Bookie.ours(uris[OURS], peers.folder) for _ in range(3)],
            PULSAR: [
                Bookie.original(peers.java, uris[PULSAR], peers.folder, flags=BIG_HEAP, settings=BEST_BOOKIE)
                for _ in range(3)
            ],
        }
        for bookie in [*bookies[OURS], *bookies[PULSAR]]:
            peers.peers.append(bookie)
            await bookie.start()
        broker = await PulsarBroker.prepare(
            java.prepare(java.PULSAR), uris[PULSAR], folder / "pulsar", v2=True, changes=QUORUMS, flags=BIG_HEAP
        )
        peers.peers.append(broker)
        await broker.start()
        pids = {side: [bookie.pid for bookie in bookies[side]] for side in bookies}
        done = []
        for number in range(rounds):
            for load in LOADS:
                for side, work, address, servers in (
                    (OURS, _ours, uris[OURS], []),
                    (PULSAR, _pulsar, broker.address, [broker.pid]),
                ):
                    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as client:
                        run = client.submit(
                            work, address, f"turn-{load.window}-{number}", load, seconds, pids[side], servers
                        )
                        done.append(await asyncio.wrap_future(run))
        return done
    finally:
        peers.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _ours(uri: str, name: str, load: Load, seconds: float, bookies: list[int], servers: list[int]) -> Round:
    async def work() -> Round:
        async with tallystick.connect(uri) as bk, bk.open_stream(f"{FOLDER}/{name}") as stream:
            free, failures = asyncio.Semaphore(load.window), []

            def answered(future: asyncio.Future[Position]) -> None:
                free.release()
                if error := future.exception():
                    failures.append(error)

            async def append(until: float) -> int:
                count = 0
                while time.monotonic() < until:
                    await free.acquire()
                    stream.append_nowait(PAYLOAD).add_done_callback(answered)
                    count += 1
                for _ in range(load.window):
                    await free.acquire()
                for _ in range(load.window):
                    free.release()
                return count

            await append(time.monotonic() + WARM_S)
            meter = Meter([*bookies, *servers])
            count = await append(time.monotonic() + seconds)
            done = _round(OURS, load, count, meter, bookies, servers)
            assert not failures, failures[0]
            return done

    return uvloop.run(work())


def _pulsar(address: str, name: str, load: Load, seconds: float, bookies: list[int], servers: list[int]) -> Round:
    import pulsar

    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(address, operation_timeout_seconds=60, logger=quiet)
    producer = client.create_producer(
        f"persistent://public/default/{name}", max_pending_messages=load.window, block_if_queue_full=True
    )

    failures: list[object] = []

    def receipt(result: object, id: object) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    def send(until: float) -> int:
        count = 0
        while time.monotonic() < until:
            if load.window == 1:
                producer.send(PAYLOAD)
            else:
                producer.send_async(PAYLOAD, receipt)
            count += 1
        producer.flush()
        return count

    send(time.monotonic() + WARM_S)
    meter = Meter([*bookies, *servers])
    count = send(time.monotonic() + seconds)
    done = _round(PULSAR, load, count, meter, bookies, servers)
    client.close()
    assert not failures, failures[0]
    return done


def _round(side: str, load: Load, count: int, meter: Meter, bookies: list[int], servers: list[int]) -> Round:
    meter.stop()
    known = {*bookies, *servers}
    spent = {
        "client": sum(used for pid, used in meter.cpu.items() if pid not in known),
        "broker": sum(meter.cpu[pid] for pid in servers),
        "bookies": sum(meter.cpu[pid] for pid in bookies),
    }
    cpu = {role: used / count * 1e6 for role, used in spent.items()}
    return Round(load.title, side, count / meter.seconds, 0, 0, cpu, sum(cpu.values()), meter.others_cores)
