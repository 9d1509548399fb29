"""How long it takes until all that a killed bookie had is on another one: by ours, and by originals.

Many ledgers are written to three bookies, each entry to all of them; a fourth one starts, one of the first is killed,
and the time runs from the kill until the last ledger names it no more. Nobody waits for a grace, and nothing bounds how
fast is copied; the session of the killed bookie ends after some seconds, which are in the time, and are told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import command
from machine import cpu_seconds

import tallystick
from support.java import BOOKKEEPER, Java, missing, prepare
from support.peers import JAVA_KEYS, Bookie, Driver, ZooKeeper
from support.repairers import Repairer
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.repair.ledger_names import LedgerNames

POLL_S = 0.05
BOUND_S = 300.0


async def write(uri: str, ledgers: int, entries: int, size: int) -> None:
    """Fill the ledgers, sixteen at once."""
    async with tallystick.connect(uri) as bk:
        numbers = iter(range(ledgers))

        async def fill() -> None:
            for _ in numbers:
                async with bk.create_ledger(3, write_quorum=3, ack_quorum=3) as writer:
                    await asyncio.gather(*(writer.append(bytes(size)) for _ in range(entries)))

        await asyncio.gather(*(fill() for _ in range(16)))


async def repaired(driver: MetadataDriver, bookie: str) -> tuple[float, float]:
    """Wait. Returns when the first ledger and when the last one named the bookie no more."""
    names, first_at, count = LedgerNames(driver), 0.0, None
    async with asyncio.timeout(BOUND_S):
        while True:
            left = len(await names.read([bookie]))
            if count is not None and left < count and not first_at:
                first_at = time.perf_counter()
            count = left
            if not left:
                return first_at or time.perf_counter(), time.perf_counter()
            await asyncio.sleep(POLL_S)


async def repairers(kind: str, java: Java, uri: str, folder: Path) -> list[Driver]:
    if kind == "tally":
        return [await Repairer.start_ours(uri, folder, lostBookieRecoveryDelay=0, replicationRateByBytes=0)]
    settings: Mapping[str, object] = {"lostBookieRecoveryDelay": 0}
    return [await Repairer.start_original(java, part, uri, folder, settings=settings) for part in ("auditor", "worker")]


async def measure(java: Java, bookies: str, kind: str, ledgers: int, entries: int, size: int) -> dict[str, object]:
    """One round: ``bookies`` and the repair are each "tally" or "java"."""
    with tempfile.TemporaryDirectory(prefix="tally-repair-") as name:
        folder = Path(name)
        service = await ZooKeeper.start(java, folder)
        uri = await service.cluster("repair")
        made = [
            Bookie.original(java, uri, folder, settings=JAVA_KEYS)
            if bookies == "java"
            else Bookie.ours(uri, folder, id=f"tally-{number}")
            for number in range(4)
        ]
        running = list[Driver]()
        try:
            await asyncio.gather(*(bookie.start() for bookie in made[:3]))
            await write(uri, ledgers, entries, size)
            await made[3].start()
            running = await repairers(kind, java, uri, folder)
            await asyncio.sleep(2)
            driver = await open_driver(uri)
            pids = [each.process.pid for each in (*running, *made[1:]) if each.process is not None]
            before = {pid: cpu_seconds(pid) for pid in pids}
            made[0].kill()
            began = time.perf_counter()
            first_at, last_at = await repaired(driver, made[0].id)
            cpu = [cpu_seconds(pid) - before[pid] for pid in pids]
            await driver.close()
        finally:
            for peer in (*running, *made):
                peer.kill()
            service.kill()
    return {
        "bookies": bookies,
        "repair": kind,
        "seconds": round(last_at - began, 2),
        "seconds_of_copying": round(last_at - first_at, 2),
        "repair_cpu_seconds": round(sum(cpu[: len(running)]), 2),
        "bookies_cpu_seconds": round(sum(cpu[len(running) :]), 2),
    }


async def rounds(pairs: list[tuple[str, str]], ledgers: int, entries: int, size: int) -> list[dict[str, object]]:
    java = prepare(BOOKKEEPER)
    return [await measure(java, *pair, ledgers, entries, size) for pair in pairs]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--ledgers", type=int, default=200, help="how many are written (200)")
    parser.add_argument("--entries", type=int, default=500, help="of each ledger (500)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of an entry (1024)")
    parser.add_argument("--rounds", type=int, default=1, help="of each of the four pairs, half a minute each (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    arguments = parser.parse_args()
    if reason := missing():
        print(f"{parser.prog}: {command.refusal(reason)}", file=sys.stderr)
        return 1

    def measured() -> command.Results:
        pairs = [("tally", "tally"), ("tally", "java"), ("java", "tally"), ("java", "java")] * arguments.rounds
        ledgers, entries, size = arguments.ledgers, arguments.entries, arguments.size
        results = asyncio.run(rounds(pairs, ledgers, entries, size))
        return {"ledgers": ledgers, "entries_each": entries, "bytes": size, "rounds": results}

    return command.report_of(parser, measured, command.as_json, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
