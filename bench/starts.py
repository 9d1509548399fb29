"""How soon a bookie with many entries and a broker with many messages are ready, and how soon they stop; in turns.

    python bench/starts.py [--quick] [--json FILE] [--docs FILE]

One bookie and one broker a kind, filled with entries and messages of 100 bytes, ten million each where the time allows
it. In each round one is killed and started, stopped, and started again. Ours starts by turns with either codec on the
same files. A start ends when the server answers a request; after ``kill -9`` the original's bookie also waits for its
session in ZooKeeper to run out. Needs Java and Maven. Ends within seven minutes, or two with --quick.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the peers are those of the interop tests

import command
import report
from beside import Bench, beside_original
from broker_sides import ASYNC, QUEUES, settings_of
from field import BIG_HEAP, Peers
from ledger_sides import BEST_BOOKIE, BEST_CLIENT
from machine import Meter, cpu_seconds, until_quiet
from report import OURS, PYTHON, Round

from support.broker_peers import Broker, NameServer, original_clients, our_clients
from support.houses import House
from support.java import BOOKKEEPER, ROCKETMQ, Java, missing, prepare
from support.peers import Bookie, Driver, Server, ZooKeeper, with_codec
from tallystick.codec import implementation

THEIRS = "original"
BOOKIE, BROKER = "bookie", "broker"
ROLES = (BOOKIE, BROKER)
STEPS = ("start after kill -9", "stop", "start after a stop")
LOADS = tuple(f"{role}: {step}" for role in ROLES for step in STEPS)
TOPIC, SIZE = "bench-starts", 100
QUIET_WITHIN_S = 10.0
TITLES = ("step", "side", "ms (all rounds)", "CPU, s", "time ÷ original")


@dataclass(frozen=True)
class Plan:
    """``fill``: seconds that filling may take; ``count``: entries, and messages."""

    limit: float
    reserve: float
    rounds: int
    fill: float
    count: int


FULL = Plan(limit=420, reserve=10, rounds=3, fill=150.0, count=10_000_000)
QUICK = Plan(limit=120, reserve=5, rounds=1, fill=10.0, count=200_000)


class Field(Peers):
    """A bookie and a broker a kind, each with a client; ``servers`` and ``clients`` by role and kind."""

    def __init__(self, java: Java, folder: Path) -> None:
        super().__init__(java, folder)
        self.servers: dict[tuple[str, str], Server] = {}
        self.clients: dict[tuple[str, str], Driver] = {}
        self.houses: dict[str, House] = {}

    async def start(self) -> None:
        service = await ZooKeeper.start(self.java, self.folder)
        self.peers.append(service)
        uri = await service.cluster("ours")
        await self._bookie(OURS, Bookie.ours(uri, self.folder))
        self._client(BOOKIE, OURS, await Driver.ours(uri, self.folder))
        uri = await service.cluster("theirs")
        theirs = Bookie.original(self.java, uri, self.folder, flags=BIG_HEAP, settings=BEST_BOOKIE)
        await self._bookie(THEIRS, theirs)
        client = await Driver.original(self.java, uri, self.folder, BEST_CLIENT, flags=BIG_HEAP)
        self._client(BOOKIE, THEIRS, client)
        java = prepare(ROCKETMQ)
        self._client(BROKER, OURS, await our_clients(self.folder))
        self._client(BROKER, THEIRS, await original_clients(java, self.folder, flags=BIG_HEAP))
        await self._broker(OURS, "tally", None)
        await self._broker(THEIRS, "java", java)

    async def _bookie(self, side: str, bookie: Bookie) -> None:
        self._server(BOOKIE, side, bookie)
        self.start_seconds[side] = [await bookie.start()]

    def _client(self, role: str, side: str, client: Driver) -> None:
        self.peers.append(client)
        self.clients[role, side] = client

    def _server(self, role: str, side: str, server: Server) -> None:
        self.peers.append(server)
        self.servers[role, side] = server

    async def _broker(self, side: str, kind: str, java: Java | None) -> None:
        name_server = NameServer(kind, self.folder, java)
        self.peers.append(name_server)
        await name_server.start()
        broker = Broker(kind, self.folder, java, name_server.address, settings_of(ASYNC), flags=BIG_HEAP)
        self._server(BROKER, side, broker)
        self.start_seconds[side].append(await broker.start())
        await name_server.knows(broker)
        clients = {"tally": self.clients[BROKER, OURS], "java": self.clients[BROKER, THEIRS]}
        self.houses[side] = House(name_server, clients)
        await self.houses[side].make_topic(TOPIC, QUEUES)

    def memory(self) -> dict[str, dict[str, float]]:
        """None: that is measured where there was a load for minutes, by ``ledger.py`` and ``broker.py``."""
        return {}


class StartsBench(Bench):
    """Fills all servers at once, and starts and stops one after the other."""

    def __init__(self, field: Field, plan: Plan, start: float) -> None:
        super().__init__(start, plan.limit, plan.reserve)
        self.field, self.plan = field, plan
        self.held: dict[str, int] = {}  # by role and side
        self._commands = {key: server.command for key, server in field.servers.items()}

    async def run(self) -> None:
        fills = (self._fill(role, side) for role in ROLES for side in (OURS, THEIRS))
        await asyncio.gather(*fills)
        sides = [OURS, THEIRS] if implementation.in_use() == "python" else [OURS, PYTHON, THEIRS]
        for _ in range(self.plan.rounds):
            for role in ROLES:
                await self.each(role, sides, partial(self._turn, role))

    async def _fill(self, role: str, side: str) -> None:
        """Not measured, so that all may do it at the same time, in pieces of a turn's length."""
        end, count = time.monotonic() + self.plan.fill, 0
        while count < self.plan.count and (left := end - time.monotonic()) > 0 and not self.left_out(side):
            most = self.plan.count - count

            async def piece(seconds: float = min(20.0, left), most: int = most) -> None:
                nonlocal count
                add = self._append if role == BOOKIE else self._send
                count += await add(side, seconds, most)

            await self.attempt(side, f"filling a {role}", piece())
        self.held[f"{role}, {side}"] = count
        self.say(f"{side}: the {role} has {count:,}")

    async def _append(self, side: str, seconds: float, most: int) -> int:
        client = self.field.clients[BOOKIE, side]
        ledger = (await client.ask("create", e=1, qw=1, qa=1))["ledger"]
        batch = "yes" if side == OURS else "no"
        done = await client.ask(
            "load-adds", ledger=ledger, size=SIZE, window=1000, seconds=seconds, most=most, batch=batch
        )
        await client.ask("close", ledger=ledger)
        return int(done["count"])

    async def _send(self, side: str, seconds: float, most: int) -> int:
        ns = self.field.houses[side].ns
        done = await self.field.clients[BROKER, side].ask(
            "load-sends", ns=ns, topic=TOPIC, size=SIZE, how="batch", window=4, batch=100, seconds=seconds, most=most
        )
        return int(done["count"])

    async def _turn(self, role: str, name: str) -> None:
        """One server is killed, and then goes through all steps with the codec of the side."""
        key = (role, THEIRS if name == THEIRS else OURS)
        server = self.field.servers[key]
        await until_quiet(QUIET_WITHIN_S)  # what a JVM does behind its start is not this one's
        server.command = with_codec(self._commands[key], "python" if name == PYTHON else "")
        server.kill()
        meter, steps = Meter([]), dict[str, tuple[float, float]]()
        for step in STEPS:
            if step == "stop":
                steps[step] = server.leave(), 0.0
            else:
                seconds = await server.start()
                steps[step] = seconds, cpu_seconds(server.pid)
        meter.stop()
        # A step is too short for the kernel's ticks to say what others did in it: the whole turn counts.
        others = max(0.0, meter.others_cores - sum(used for _, used in steps.values()) / meter.seconds)
        for step, (seconds, used) in steps.items():
            cpu = used * 1e6
            done = Round(f"{role}: {step}", name, 1 / seconds, seconds * 1e3, 0.0, {"server": cpu}, cpu, others)
            self.rounds.append(done)
            self.say(str(done))


async def measure(plan: Plan) -> command.Results:
    """Everything that the report needs."""
    benches: list[StartsBench] = []

    def bench_of(field: Field, start: float) -> StartsBench:
        benches.append(StartsBench(field, plan, start))
        return benches[0]

    results = await beside_original(BOOKKEEPER, plan, Field, bench_of)
    return {**results, "held": benches[0].held}


def steps_table(rounds: list[Round]) -> str:
    """How long each step takes each side, and what processor time a start takes."""
    groups: dict[tuple[str, str], list[Round]] = {}
    for one in rounds:
        groups.setdefault((one.load, one.side), []).append(one)
    rows = []
    for (load, side), group in sorted(groups.items(), key=lambda item: LOADS.index(item[0][0])):
        took_ms, used_us = report.median(group, lambda r: r.p50_ms), report.median(group, lambda r: r.total_us)
        theirs = groups.get((load, THEIRS), [])
        rows.append(
            [
                load,
                report.title_of(side),
                f"{took_ms:,.0f} ({' '.join(f'{one.p50_ms:,.0f}' for one in group)})",
                f"{used_us / 1e6:.2f}" if used_us else "-",
                f"{took_ms / report.median(theirs, lambda r: r.p50_ms):.2f}" if theirs and side != THEIRS else "",
            ]
        )
    return report.grid(TITLES, rows)


def markdown(results: command.Results) -> str:
    """Each step, and how much the servers hold."""
    held = "; ".join(f"{who}: {count / 1e6:.2f} M" for who, count in results["held"].items())
    return report.markdown(
        results, steps_table(results["rounds"]), f"Entries and messages of {SIZE} bytes that they hold: {held}."
    )


def main() -> int:
    return command.run(
        __doc__,
        "fewer entries and one round: within two minutes",
        lambda quick: asyncio.run(measure(QUICK if quick else FULL)),
        markdown,
        missing=missing(),
        place="starts",
    )


if __name__ == "__main__":
    sys.exit(main())
