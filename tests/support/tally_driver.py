"""Our client of ledgers in a process of its own, driven by the same lines as the original's (``lines.py``).

Usage: ``python tally_driver.py URI [WIRE]``. It ends like a crash, closing nothing, when its standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import uvloop

import tallystick

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.content import content, payload
from support.lines import Answer, Arguments, Verbs, serve
from support.tally_loads import TallyLoads
from support.tally_modes import TallyModes

PAYLOADS = 64


class TallyDriver:
    """One client; a ledger's handles are named by its id: one to write, one to read."""

    def __init__(self, client: tallystick.BookKeeper) -> None:
        self.client = client
        self.writers: dict[int, tallystick.LedgerWriter] = {}
        self.readers: dict[int, tallystick.LedgerReader] = {}
        self.sent: defaultdict[int, list[asyncio.Future[int]]] = defaultdict(list)

    async def create(self, given: Arguments) -> Answer:
        pairs = (pair.split(":", 1) for pair in given.get("custom", "").split(",") if pair)
        writer = await self.client.create_ledger(
            ensemble=int(given["e"]),
            write_quorum=int(given["qw"]),
            ack_quorum=int(given["qa"]),
            digest=given.get("digest", "crc32c"),
            password=bytes.fromhex(given.get("password", "")),
            custom_metadata={bytes.fromhex(key).decode(): bytes.fromhex(value) for key, value in pairs},
        )
        self.writers[writer.id] = writer
        return {"ledger": writer.id}

    async def append(self, given: Arguments) -> Answer:
        await self.send(given)
        return await self.settle(given)

    async def send(self, given: Arguments) -> Answer:
        """Hand entries to the client without waiting for any answer."""
        ledger, seed, size = int(given["ledger"]), int(given["seed"]), int(given["size"])
        writer = self.writers[ledger]
        first = int(given["first"]) if "first" in given else writer.lac + 1 + len(self.sent[ledger])
        self.sent[ledger] += [
            writer.append_nowait(payload(seed, entry, size)) for entry in range(first, first + int(given["count"]))
        ]
        await asyncio.sleep(0)  # the client writes at the end of the tick
        return {}

    async def settle(self, given: Arguments) -> Answer:
        """Wait for all that was sent: the last entry id, or the first failure."""
        ledger = int(given["ledger"])
        results = await asyncio.gather(*self.sent.pop(ledger, []), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return {"last": self.writers[ledger].lac}

    async def close(self, given: Arguments) -> Answer:
        writer = self.writers[int(given["ledger"])]
        await writer.close()
        return {"last": writer.lac, "length": writer.length}

    async def open(self, given: Arguments) -> Answer:
        started = time.perf_counter()
        reader = await self.client.open_ledger(
            int(given["ledger"]),
            password=bytes.fromhex(given.get("password", "")),
            recover=given.get("recover") == "yes",
        )
        seconds = time.perf_counter() - started
        self.readers[int(given["ledger"])] = reader
        return {"last": reader.last_entry, "closed": "yes" if reader.is_closed else "no", "seconds": seconds}

    async def read(self, given: Arguments) -> Answer:
        handles = self.writers if given.get("by") == "writer" else self.readers
        found = handles[int(given["ledger"])].read(int(given["first"]), int(given["last"]))
        return content([(entry.id, bytes(entry.data)) async for entry in found])

    async def metadata(self, given: Arguments) -> Answer:
        found = await self.client.ledger_metadata(int(given["ledger"]))
        custom = ",".join(f"{key.encode().hex()}:{value.hex()}" for key, value in sorted(found.custom.items()))
        return {
            "e": found.ensemble_size, "qw": found.write_quorum, "qa": found.ack_quorum, "state": found.state.name,
            "last": found.last_entry, "length": found.length, "digest": found.digest_type.name.lower(),
            "password": found.password.hex(), "custom": custom,
            "fragments": ";".join(f"{fragment.first}={','.join(fragment.bookies)}" for fragment in found.fragments),
            "format": found.format_version, "ctoken": found.ctoken, "ctime": found.ctime_ms,
        }  # fmt: skip

    async def delete(self, given: Arguments) -> Answer:
        await self.client.delete_ledger(int(given["ledger"]))
        return {}

    async def ledgers(self, given: Arguments) -> Answer:
        return {"ledgers": ",".join([str(ledger) async for ledger in self.client.ledgers()])}

    async def bookies(self, given: Arguments) -> Answer:
        return {"bookies": ",".join(sorted((await self.client.bookies()).writable))}

    async def load_adds(self, given: Arguments) -> Answer:
        """Append for some seconds, a bounded number in flight: a future an entry, or one call a quarter of the window.

        Confirmations come in order, so the last future of the oldest quarter of the window stands for all of it.
        """
        writer = self.writers[int(given["ledger"])]
        window, most = int(given["window"]), int(given.get("most", 20_000_000))
        payloads = [payload(0, number, int(given["size"])) for number in range(PAYLOADS)]
        share = max(1, min(window // 4, most))
        flying: list[tuple[float, asyncio.Future[Any]]] = []
        latencies: list[float] = []
        count, started = 0, time.perf_counter()
        end = started + float(given["seconds"])

        async def oldest() -> None:
            sent, last = flying.pop(0)
            await last
            latencies.append(time.perf_counter() - sent)

        def one_by_one(run: list[bytes]) -> asyncio.Future[int]:
            for data in run:
                last = writer.append_nowait(data)
            return last

        def together(run: list[bytes]) -> asyncio.Future[range]:
            return asyncio.ensure_future(writer.append_batch(run))

        append = together if given.get("batch") == "yes" else one_by_one
        while time.perf_counter() < end and count < most:
            if len(flying) * share >= window:
                await oldest()
            sent = time.perf_counter()
            run = [payloads[number % PAYLOADS] for number in range(count, count + share)]
            flying.append((sent, append(run)))
            count += share
        while flying:
            await oldest()
        seconds = time.perf_counter() - started
        latencies.sort()
        return {
            "count": count,
            "seconds": seconds,
            "p50": latencies[len(latencies) // 2] * 1e3,
            "p99": latencies[int(len(latencies) * 0.99)] * 1e3,
        }

    async def load_reads(self, given: Arguments) -> Answer:
        """Read a closed ledger from its start, once or again and again; digests are checked, payloads stay in Arrow
        buffers."""
        ledger = int(given["ledger"])
        reader = self.readers.get(ledger) or await self.client.open_ledger(ledger)
        self.readers[ledger] = reader
        entries, size, started = 0, 0, time.perf_counter()
        end, once = started + float(given["seconds"]), given.get("once") == "yes"
        while time.perf_counter() < end and not (once and entries):
            async with contextlib.aclosing(reader.read_arrow(0, reader.last_entry)) as batches:
                async for batch in batches:
                    entries, size = entries + batch.num_rows, size + batch.nbytes
                    if time.perf_counter() >= end:
                        break
        return {"count": entries, "bytes": size, "seconds": time.perf_counter() - started}

    def verbs(self) -> Verbs:
        plain = (
            self.create, self.append, self.send, self.settle, self.close, self.open, self.read,
            self.metadata, self.delete, self.ledgers, self.bookies,
        )  # fmt: skip
        return {**{verb.__name__: verb for verb in plain}, "load-adds": self.load_adds, "load-reads": self.load_reads}


async def main(uri: str, wire: str = "auto") -> None:
    async with tallystick.connect(uri, settings=tallystick.ClientSettings(wire=wire)) as client:
        driver = TallyDriver(client)
        await serve({**driver.verbs(), **TallyModes(driver).verbs(), **TallyLoads(driver).verbs()})


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
