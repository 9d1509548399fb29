"""Loads of a benchmark on our client beside those of the driver itself: the twin of java/bookkeeper/Reads.java."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from functools import partial
from typing import Protocol

import tallystick
from support.content import payload
from support.lines import Answer, Arguments, Verbs


class Handles(Protocol):
    """The driver, as far as its handles are concerned."""

    client: tallystick.BookKeeper
    writers: dict[int, tallystick.LedgerWriter]
    readers: dict[int, tallystick.LedgerReader]


class TallyLoads:
    """The verbs over a driver's handles."""

    def __init__(self, driver: Handles) -> None:
        self._driver = driver

    async def _reader(self, ledger: int) -> tallystick.LedgerReader:
        readers = self._driver.readers
        if ledger not in readers:
            readers[ledger] = await self._driver.client.open_ledger(ledger)
        return readers[ledger]

    async def random(self, given: Arguments) -> Answer:
        """Read single entries of a closed ledger, ``window`` of them at once."""
        reader, chance = await self._reader(int(given["ledger"])), random.Random(int(given["seed"]))
        latencies, started = list[float](), time.perf_counter()
        end = started + float(given["seconds"])

        async def one_by_one() -> None:
            while (began := time.perf_counter()) < end:
                entry = chance.randrange(reader.last_entry + 1)
                async with contextlib.aclosing(reader.read(entry, entry)) as entries:
                    async for _ in entries:
                        latencies.append(time.perf_counter() - began)

        await asyncio.gather(*(one_by_one() for _ in range(int(given["window"]))))
        return _measured(started, latencies)

    async def each_its_own(self, given: Arguments) -> Answer:
        """Read many closed ledgers at the same time, each from its start, again and again, into Arrow buffers."""
        readers = [await self._reader(int(ledger)) for ledger in given["ledger"].split(",")]
        entries, size, started = 0, 0, time.perf_counter()
        end = started + float(given["seconds"])

        async def read(reader: tallystick.LedgerReader) -> None:
            nonlocal entries, size
            while time.perf_counter() < end:
                async with contextlib.aclosing(reader.read_arrow(0, reader.last_entry)) as batches:
                    async for batch in batches:
                        entries, size = entries + batch.num_rows, size + batch.nbytes
                        if time.perf_counter() >= end:
                            break

        await asyncio.gather(*map(read, readers))
        return {"count": entries, "bytes": size, "seconds": time.perf_counter() - started}

    async def steady(self, given: Arguments) -> Answer:
        """Append at a steady rate; each append is timed from when it was due."""
        writer, rate = self._driver.writers[int(given["ledger"])], int(given["rate"])
        data, total = payload(0, 0, int(given["size"])), int(rate * float(given["seconds"]))
        latencies, futures = list[float](), list[asyncio.Future[int]]()
        started = time.perf_counter()

        def confirmed(due_at: float, future: asyncio.Future[int]) -> None:
            latencies.append(time.perf_counter() - due_at)

        for number in range(total):
            due_at = started + number / rate
            await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
            futures.append(writer.append_nowait(data))
            futures[-1].add_done_callback(partial(confirmed, due_at))
        await asyncio.gather(*futures)
        return _measured(started, latencies)

    def verbs(self) -> Verbs:
        return {"load-random": self.random, "load-readers": self.each_its_own, "load-steady": self.steady}


def _measured(started: float, latencies: list[float]) -> Answer:
    seconds = time.perf_counter() - started
    latencies.sort()
    half, most = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    return {"count": len(latencies), "seconds": seconds, "p50": half * 1e3, "p99": most * 1e3}
