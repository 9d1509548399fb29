"""Entries that are appended while bookies fail, and what was acknowledged of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from support.waiting import until
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import NotEnoughBookies

LEDGER_ENTRIES = 200


async def created(bk: BookKeeper) -> LedgerWriter:
    """A ledger on three bookies, as soon as so many are registered: on a busy machine one loses its session."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NotEnoughBookies):
                return await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
            await asyncio.sleep(0.1)


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
            async with await created(self.bk) as writer:
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
