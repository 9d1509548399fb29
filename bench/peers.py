"""Beside what a Python user may pick instead: Apache Kafka, NATS JetStream, Redis Streams, with what answers promise.

    python bench/peers.py [--quick] [--json FILE] [--docs FILE]

Three servers of each system on this machine (of our topics a master and a slave), all up at once, and a client in a
process of its own for each turn; sides take turns. CPU is that of the client and of all servers, a message. What is not
installed is left out, and it is said how to get it: nothing of it is part of the project. Ten minutes with all of
them, or three with --quick.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # Java and processes are those of the tests

import command
import peer_clients as clients
import uvloop
from machine import RESTED_S, Meter, anonymous_mb, describe
from peer_clients import Work
from peer_servers import KafkaServers, NatsServers, RedisServers, Servers
from report import OURS, Form, Round, grid, rounds_table
from turns import Failure, Turns

from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState, NodeKind

BROKERS = "1+1"  # a master with a slave, for which it waits
LEDGERS, TOPICS, KAFKA, NATS, REDIS = "ledgers", "topics", "Kafka", "NATS JetStream", "Redis Streams"
SERVERS: dict[str, type[Servers]] = {KAFKA: KafkaServers, NATS: NatsServers, REDIS: RedisServers}
MODULES = {KAFKA: ("confluent_kafka", "confluent-kafka"), NATS: ("nats", "nats-py"), REDIS: ("redis", "redis")}
SYNCED, ANSWERED, READ = "append, synced", "send, answered before it is synced", "read in order"
Client = Callable[[str, str, int], AbstractAsyncContextManager[Work]]
FORM = Form("messages", "client + servers", OURS, (("CPU ÷ ours", lambda one: one.total_us),))


@dataclass(frozen=True)
class Side:
    """One way to do one thing. ``promise``: what an answer means; ``module``: needed besides the system's own."""

    load: str
    name: str
    system: str
    client: Client
    promise: str
    module: str = ""


Sides = dict[str, Side]  # by name


# What an answer means.
QUORUM_SYNCED = "two of three bookies at least have synced it"
IN_SYNC_SYNCED = "all in-sync brokers, at least two, have synced it"
IN_SYNC_HAVE = "all in-sync brokers, at least two, have it in their page cache"
MAJORITY_SYNCED = "two of three servers have synced it"
REPLICA_SYNCED = "the master and a replica have synced it; before Redis 7.2 the replica has read it"
PAIR_HAS = "the master and its slave have it in their page cache"
CHECKED, UNCHECKED = "each digest was checked", "nothing: checksums are not checked by default"
SIDES = (
    Side(SYNCED, OURS, LEDGERS, clients.ledger_batches, f"{QUORUM_SYNCED}; batches of 250"),
    Side(SYNCED, f"{OURS}, one by one", LEDGERS, clients.ledger_pipelined, QUORUM_SYNCED),
    Side(SYNCED, "Kafka, flushed, confluent-kafka", KAFKA, clients.kafka_flushed, IN_SYNC_SYNCED),
    Side(SYNCED, "Kafka, flushed, aiokafka", KAFKA, clients.kafka_aiokafka, IN_SYNC_SYNCED, "aiokafka"),
    Side(SYNCED, "NATS, R3, nats-py", NATS, clients.nats_pipelined, MAJORITY_SYNCED),
    Side(SYNCED, "Redis, batches of 250", REDIS, clients.redis_batches, REPLICA_SYNCED),
    Side(ANSWERED, OURS, TOPICS, clients.topic_pipelined, PAIR_HAS),
    Side(ANSWERED, f"{OURS}, gathered", TOPICS, clients.topic_gathered, PAIR_HAS),
    Side(ANSWERED, f"{OURS}, batches of 100", TOPICS, clients.topic_batches, PAIR_HAS),
    Side(ANSWERED, "Kafka, default, confluent-kafka", KAFKA, clients.kafka_default, IN_SYNC_HAVE),
    Side(READ, OURS, LEDGERS, clients.ledger_read, CHECKED),
    Side(READ, f"{OURS}, into Arrow", LEDGERS, clients.ledger_arrow, CHECKED),
    Side(READ, "Kafka, confluent-kafka", KAFKA, clients.kafka_read, UNCHECKED),
    Side(READ, "Redis, redis-py", REDIS, clients.redis_read, "nothing: there are no checksums"),
)
SIZES = {SYNCED: (100, 1024), ANSWERED: (1024,), READ: (1024,)}


@dataclass(frozen=True)
class Plan:
    limit: float
    rounds: int
    seconds: float
    warm: float


FULL, QUICK = Plan(600, 3, 3.0, 3.0), Plan(240, 1, 1.0, 0.5)


def missing_of(system: str) -> str | None:
    """Why a system cannot take part, and how to get what lacks; None when it can."""
    if system not in SERVERS:
        return None
    return "; ".join(filter(None, (_not_installed(*MODULES[system]), SERVERS[system].missing()))) or None


def _not_installed(module: str, package: str) -> str | None:
    return f"{module} is not installed: pip install {package}" if find_spec(module) is None else None


def absent() -> dict[str, str]:
    """Why, of the systems that cannot take part, and of further clients of those that can."""
    systems = {system: why for system in SERVERS if (why := missing_of(system))}
    further = [side for side in SIDES if side.module and side.system not in systems]
    return {**systems, **{side.name: why for side in further if (why := _not_installed(side.module, side.module))}}


def turn(*arguments: Any) -> Round:
    """One turn, in a process of its own: errors of foreign libraries do not find their way out of it as they are."""
    try:
        return uvloop.run(_turn(*arguments))
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


async def _turn(side: Side, load: str, size: int, name: str, address: str, pids: list[int], plan: Plan) -> Round:
    async with side.client(address, name, size) as work:
        await work(time.monotonic() + plan.warm)
        meter = Meter(pids)
        count = await work(time.monotonic() + plan.seconds)
        meter.stop()
        used = {"client": meter.cpu[os.getpid()], "servers": sum(meter.cpu[pid] for pid in pids)}
        cpu = {role: seconds / count * 1e6 for role, seconds in used.items()}
        return Round(load, side.name, count / meter.seconds, 0, 0, cpu, sum(cpu.values()), meter.others_cores)


class PeersBench(Turns):
    """``where``: address and processes of each system that takes part."""

    def __init__(self, plan: Plan, where: dict[str, tuple[str, list[int]]]) -> None:
        super().__init__(time.monotonic(), plan.limit, 0)
        self.plan, self.where = plan, where
        self.rounds: list[Round] = []
        self._turns = itertools.count()

    async def run(self) -> None:
        for _ in range(self.plan.rounds):
            for what, sizes in SIZES.items():
                sides = {side.name: side for side in SIDES if side.load == what and self._takes_part(side)}
                for size in sizes:
                    load = f"{what}, {'1 KB' if size == 1024 else f'{size} B'}"

                    async def one(name: str, load: str = load, size: int = size, sides: Sides = sides) -> None:
                        await self._turn(sides[name], load, size)

                    await self.each(load, sides, one)

    def _takes_part(self, side: Side) -> bool:
        return side.system in self.where and not (side.module and find_spec(side.module) is None)

    async def _turn(self, side: Side, load: str, size: int) -> None:
        address, pids = self.where[side.system]
        name = f"peers-{os.getpid()}-{next(self._turns)}"
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            done = process.submit(turn, side, load, size, name, address, pids, self.plan)
            self.rounds.append(await asyncio.wrap_future(done))
        self.say(str(self.rounds[-1]))


async def _beside(plan: Plan, folder: Path, state: DevState) -> command.Results:
    where = {
        LEDGERS: (state.uri, _pids(state, NodeKind.BOOKIE)),
        TOPICS: (str(state.name_server), _pids(state, NodeKind.BROKER)),
    }
    missing = absent()
    others = {system: kind(folder / kind.__name__) for system, kind in SERVERS.items() if system not in missing}
    bench = PeersBench(plan, where)
    try:
        for system, servers in others.items():
            try:
                await servers.start()
                where[system] = servers.address, servers.pids
            except Exception as error:
                bench.failures.append(Failure(system, "start", f"{type(error).__name__}: {error}"))
        rest = _memory(where)
        await bench.run()
        await asyncio.sleep(RESTED_S)
        return {
            "rounds": bench.rounds, "failures": bench.failures, "missing": missing, "skipped": bench.skipped_rounds,
            "resident_mb": {"rest": rest, "loaded": _memory(where)},
        }  # fmt: skip
    finally:
        for servers in others.values():
            servers.stop()


def _memory(where: dict[str, tuple[str, list[int]]]) -> dict[str, dict[str, float]]:
    return {system: {"servers": sum(map(anonymous_mb, pids))} for system, (_, pids) in where.items()}


def _pids(state: DevState, kind: NodeKind) -> list[int]:
    return [node.process.pid for node in state.nodes if node.kind is kind and node.process is not None]


def measure(quick: bool) -> command.Results:
    plan, start = QUICK if quick else FULL, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tally-peers-", dir="/var/tmp") as folder:
        machine, cluster = describe(Path(folder)), DevCluster(f"{folder}/ours")
        state = cluster.up(3, BROKERS)
        try:
            results = asyncio.run(_beside(plan, Path(folder), state))
        finally:
            cluster.down()
    return {"machine": machine, "plan": plan, **results, "seconds": time.monotonic() - start}


def markdown(results: command.Results) -> str:
    machine, memory = results["machine"], results["resident_mb"]
    shown = {one.side for one in (*results["rounds"], *results["failures"])}
    parts = [
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}, codec {machine['codec']}; "
        f"{results['seconds']:.0f} s" + (f", {results['skipped']} rounds skipped." if results["skipped"] else "."),
        rounds_table(results["rounds"], results["failures"], FORM),
        grid(
            ("load", "side", "an answer means"),
            ([side.load, side.name, side.promise] for side in SIDES if side.name in shown),
        ),
        grid(
            ("servers", "RSS MB of all without files, at rest", f"{RESTED_S:.0f} s after the load"),
            (
                [name, *(f"{memory[when][name]['servers']:.0f}" for when in ("rest", "loaded"))]
                for name in memory["rest"]
            ),
        ),
    ]
    parts += [f"Not measured: {system}: {why}." for system, why in results["missing"].items()]
    parts += [f"**{one.side} failed**: {one}" for one in results["failures"]]
    return "\n\n".join(parts)


def main() -> int:
    return command.run(__doc__, "one short round each: three minutes", measure, markdown, place="peers")


if __name__ == "__main__":
    sys.exit(main())
