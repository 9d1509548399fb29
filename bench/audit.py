"""What a full audit of copies does to appends: their latency without and with one, in turns.

    python bench/audit.py [--quick] [--json FILE] [--docs FILE]

Three bookies have many closed ledgers, each entry on all three. A client appends one entry of 1 KB after the other;
then an auditor starts that asks all bookies for the entry lists of all ledgers and reads samples, and the same client
goes on until it is through: at the pace of its defaults, and as fast as it can.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import command
from machine import busy_seconds, cpu_seconds, describe
from report import grid

import tallystick
from support.peers import Bookie
from support.repairers import Repairer
from support.waiting import until
from tallystick.admin.cluster import init
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Delete
from tallystick.bookkeeper.repair.settings import RepairSettings

ENTRY = bytes(1024)
AUDIT_S = 300.0  # at most
ALONE_S = 10.0


@dataclass(frozen=True)
class Round:
    ledgers: int
    ledgers_per_s: float  # the setting; 0: as fast as it can
    audit_s: float
    alone_p50_ms: float
    alone_p99_ms: float
    p50_ms: float
    p99_ms: float
    auditor_cpu_s: float
    load: float  # cores that the whole machine used during the audit


async def write(uri: str, ledgers: int, entries: int) -> None:
    """Fill the ledgers, sixteen at once."""
    async with tallystick.connect(uri) as bk:
        numbers = iter(range(ledgers))

        async def fill() -> None:
            for _ in numbers:
                async with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
                    await writer.append_batch([ENTRY] * entries)

        await asyncio.gather(*(fill() for _ in range(16)))


async def append(write: Callable[[bytes], Awaitable[object]], until_done: asyncio.Task[None]) -> list[float]:
    times = []
    while not until_done.done():
        start = time.perf_counter()
        await write(ENTRY)
        times.append((time.perf_counter() - start) * 1000)
    until_done.result()
    return times


async def forget_last_audit(driver: MetadataDriver) -> None:
    path = f"/tallystick{driver.root}/audited"
    node = await driver.store.get(path)
    if node is not None:
        await driver.store.change(Delete(path, node.version))


async def measure(uri: str, folder: Path, ledgers: int, per_s: float, number: int) -> Round:
    async with tallystick.connect(uri) as bk, bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        await forget_last_audit(bk.context.driver)
        alone = await append(writer.append, asyncio.create_task(asyncio.sleep(ALONE_S)))
        home = folder / f"audit-{number}"
        auditor = await Repairer.start_ours(uri, home, closedLedgerCheckInterval=1000, auditLedgersPerSecond=per_s)
        log = auditor.folder / f"{auditor.name}.log"
        began, busy = time.perf_counter(), busy_seconds()
        try:
            audited = asyncio.create_task(until(lambda: "copies audited" in log.read_text(), AUDIT_S, pause=0.1))
            audit = await append(writer.append, audited)
            took = time.perf_counter() - began
            cpu, load = cpu_seconds(auditor.pid), (busy_seconds() - busy) / took
        finally:
            auditor.kill()
    quantiles = [statistics.quantiles(times, n=100) for times in (alone, audit)]
    (p50_alone, p99_alone), (p50, p99) = ((each[49], each[98]) for each in quantiles)
    return Round(ledgers, per_s, took, p50_alone, p99_alone, p50, p99, cpu, load)


async def rounds(quick: bool) -> list[Round]:
    ledgers, entries = (500, 20) if quick else (2000, 40)
    default = RepairSettings().audit_ledgers_per_s
    with tempfile.TemporaryDirectory(prefix="tally-audit-") as name:
        folder, uri = Path(name), f"sqlite://{name}/metadata.db"
        await init(uri)
        bookies = [Bookie.ours(uri, folder, id=f"b{number}") for number in range(3)]
        try:
            await asyncio.gather(*(bookie.start() for bookie in bookies))
            await write(uri, ledgers, entries)
            made = []
            for number, per_s in enumerate([default] if quick else [default, 0.0] * 2):
                made.append(await measure(uri, folder, ledgers, per_s, number))
                print(made[-1], file=sys.stderr, flush=True)
            return made
        finally:
            for bookie in bookies:
                bookie.kill()


def all_rounds(quick: bool) -> command.Results:
    return {"machine": describe(Path(tempfile.gettempdir())), "rounds": asyncio.run(rounds(quick))}


TITLES = {
    "ledgers": "ledgers",
    "ledgers_per_s": "ledgers/s at most",
    "audit_s": "audit, s",
    "alone_p50_ms": "append alone p50, ms",
    "p50_ms": "beside the audit p50, ms",
    "alone_p99_ms": "alone p99, ms",
    "p99_ms": "beside the audit p99, ms",
    "auditor_cpu_s": "auditor's CPU, s",
}


def markdown(results: command.Results) -> str:
    """Each round, with the ratio of the p99s."""
    made: list[Round] = results["rounds"]
    rows = [[*(f"{asdict(one)[name]:,.4g}" for name in TITLES), f"{one.p99_ms / one.alone_p99_ms:.2f}"] for one in made]
    return grid([*TITLES.values(), "ratio of p99"], rows)


def main() -> int:
    return command.run(__doc__, "fewer ledgers, one round", all_rounds, markdown, place="audit")


if __name__ == "__main__":
    sys.exit(main())
