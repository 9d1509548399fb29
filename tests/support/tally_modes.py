"""What only version 3 of the protocol has, by our client: the twin of java/bookkeeper/Modes.java."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Protocol

import tallystick
from support.content import content, payload
from support.lines import Answer, Arguments, Verbs


class Handles(Protocol):
    """The driver, as far as its handles are concerned."""

    client: tallystick.BookKeeper
    writers: dict[int, tallystick.LedgerWriter]
    readers: dict[int, tallystick.LedgerReader]


class TallyModes:
    """The verbs over a driver's handles."""

    def __init__(self, driver: Handles) -> None:
        self._driver, self._client = driver, driver.client

    async def create(self, given: Arguments) -> Answer:
        """A ledger with ``deferred=yes``; ids that are given: of entries with ``given=yes``, its own with ``id``."""
        writer = await self._client.create_ledger(
            int(given["e"]),
            write_quorum=int(given["qw"]),
            ack_quorum=int(given["qa"]),
            ledger_id=int(given["id"]) if "id" in given else None,
            entry_ids="given" if given.get("given") == "yes" else "counted",
            deferred_sync=given.get("deferred") == "yes",
        )
        self._driver.writers[writer.id] = writer
        return {"ledger": writer.id}

    async def add_given(self, given: Arguments) -> Answer:
        """Add entries with these ids, in this order, and wait for all of them."""
        writer, seed, size = self._driver.writers[int(given["ledger"])], int(given["seed"]), int(given["size"])
        entries = [int(entry) for entry in given["entries"].split(",")]
        await asyncio.gather(*(writer.append_nowait(payload(seed, entry, size), entry) for entry in entries))
        return {"last": writer.lac}

    async def force(self, given: Arguments) -> Answer:
        return {"last": await self._driver.writers[int(given["ledger"])].force()}

    async def lac(self, given: Arguments) -> Answer:
        return {"last": await self._driver.readers[int(given["ledger"])].refresh()}

    async def poll(self, given: Arguments) -> Answer:
        """Wait for an entry of an open ledger, by long poll where the protocol has it."""
        reader, first = self._driver.readers[int(given["ledger"])], int(given["entry"])
        found = []
        async with contextlib.aclosing(reader.follow(first)) as entries:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(int(given["milliseconds"]) / 1000):
                    entry = await anext(entries)
                    found.append((entry.id, bytes(entry.data)))
        return {"last": reader.last_entry, **content(found)}

    async def stored(self, given: Arguments) -> Answer:
        """Which entries a bookie has of a ledger, as ranges."""
        listed = await self._client.context.bookies.entry_list(given["bookie"], int(given["ledger"]))
        return {"ranges": ",".join(f"{first}-{last}" for first, last in listed.runs()), "count": listed.count}

    async def space(self, given: Arguments) -> Answer:
        """Free and total bytes of the bookies' disks."""
        answer: Answer = {}
        for bookie in (await self._client.bookies()).writable:
            space = await self._client.context.bookies.bookie_space(bookie)
            answer[bookie] = f"{space.free_bytes}/{space.total_bytes}"
        return answer

    async def load_follow(self, given: Arguments) -> Answer:
        """Append an entry each ``pause`` milliseconds, and follow: how long after its append each one came."""
        ledger, pause_s = int(given["ledger"]), int(given["pause"]) / 1000
        writer, count = self._driver.writers[ledger], int(float(given["seconds"]) / pause_s)
        sent_at, latencies = dict[int, float](), list[float]()

        async def follow() -> None:
            async with self._client.open_ledger(ledger) as reader, contextlib.aclosing(reader.follow(0)) as entries:
                async for entry in entries:
                    latencies.append(time.perf_counter() - sent_at[entry.id])
                    if entry.id == count - 1:
                        return

        following, data = asyncio.ensure_future(follow()), payload(1, 0, int(given["size"]))
        started = time.perf_counter()
        for entry in range(count):
            sent_at[entry] = time.perf_counter()
            await writer.append(data)
            await asyncio.sleep(pause_s)
        await following
        return _measured(count, started, latencies)

    async def load_force(self, given: Arguments) -> Answer:
        """Add entries without a sync and force them, again and again: how long one such round takes."""
        writer, data = self._driver.writers[int(given["ledger"])], payload(1, 0, int(given["size"]))
        window, count, latencies = int(given["window"]), 0, list[float]()
        started = time.perf_counter()
        while (began := time.perf_counter()) < started + float(given["seconds"]):
            await asyncio.gather(*(writer.append_nowait(data) for _ in range(window)))
            await writer.force()
            latencies.append(time.perf_counter() - began)
            count += window
        return _measured(count, started, latencies)

    def verbs(self) -> Verbs:
        return {
            "create-mode": self.create,
            "add-given": self.add_given,
            "force": self.force,
            "lac": self.lac,
            "poll": self.poll,
            "stored": self.stored,
            "space": self.space,
            "load-follow": self.load_follow,
            "load-force": self.load_force,
        }


def _measured(count: int, started: float, latencies: list[float]) -> Answer:
    seconds = time.perf_counter() - started
    latencies.sort()
    half, most = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    return {"count": count, "seconds": seconds, "p50": half * 1e3, "p99": most * 1e3}
