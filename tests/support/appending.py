"""Entries that are appended while bookies fail, and what was acknowledged of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from support.waiting import until
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import LedgerId

LEDGER_ENTRIES = 200


@dataclass
class Load:
    """One entry after another in ledgers of some hundred each, until it is told to end."""

    bk: BookKeeper
    size: int = 10  # bytes of an entry, about
    acknowledged: dict[LedgerId, list[bytes]] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ended = asyncio.Event()
        task = asyncio.create_task(self._run(ended))
        try:
            yield
        finally:
            ended.set()
            await task

    async def _run(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            async with self.bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
                stored = self.acknowledged.setdefault(writer.id, [])
                while len(stored) < LEDGER_ENTRIES and not ended.is_set():
                    data = (b"%d of %d " % (len(stored), writer.id)).ljust(self.size, b".")
                    await writer.append(data)
                    stored.append(data)

    async def moves(self) -> None:
        """Wait until some appends more were acknowledged."""
        before = self.count
        await until(lambda: self.count >= before + 50, seconds=120)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def require_all(self) -> None:
        for ledger, stored in self.acknowledged.items():
            async with self.bk.open_ledger(ledger) as reader:
                assert [bytes(entry.data) async for entry in reader][: len(stored)] == stored
