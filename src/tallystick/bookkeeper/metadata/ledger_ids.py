"""New ledger ids, as the original gives them (``ZkLedgerIdGenerator``, ``LongZkLedgerIdGenerator``).

The counter of ``idgen`` gives a short id. When its 31 bits are used up, or ``idgen-long`` is there (another client saw
it first), ids are long: upper half the number of a folder ``idgen-long/HOB-…``, lower half the number that its counter
gives.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence

from tallystick.bookkeeper.metadata.layout import SHORT_IDS_END
from tallystick.bookkeeper.metadata.store import Create, Delete, MetadataStore
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import MetadataConflict

KEPT_HIGH_FOLDERS = 3
MOST_SKIPPED = 100_000  # ids: a minute or two


class LedgerIds:
    """Draws ids for ledgers: each is drawn once, though a ledger with a chosen id may have it already."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store, self._short, self._long = store, f"{root}/idgen", f"{root}/idgen-long"
        self._is_long = False

    async def create_next(self, create: Callable[[LedgerId], Sequence[Create]]) -> LedgerId:
        """Take the next id and make what ``create`` says of it. Raises ZnodeExists: take another one."""
        if not self._is_long:
            ledger = await self._take(self._short, 0, create, unless=self._long)
            if ledger is not None:
                return ledger
        self._is_long = True
        return await self._next_long(create)

    async def skip(self, ledgers: Collection[LedgerId]) -> None:
        """Draw ids until none of these is drawn any more, but for ids far beyond the next one: somebody chose those."""
        drawn = await self.create_next(lambda ledger: ())
        last = max((ledger for ledger in ledgers if ledger - drawn <= MOST_SKIPPED), default=drawn)
        while drawn < last:
            drawn = await self.create_next(lambda ledger: ())

    async def _take(
        self, counter: str, high: int, create: Callable[[LedgerId], Sequence[Create]], *, unless: str | None = None
    ) -> LedgerId | None:
        """Returns None if the counter ran over; then nothing was made."""

        def create_low(low: int) -> Sequence[Create]:
            return create(high << 32 | low) if 0 <= low < SHORT_IDS_END else ()

        low = await self._store.create_next(counter, create_low, unless=unless)
        return high << 32 | low if low is not None and 0 <= low < SHORT_IDS_END else None

    async def _next_long(self, create: Callable[[LedgerId], Sequence[Create]]) -> LedgerId:
        high = max(await self._highs(), default=1)
        while True:
            ledger = await self._take(f"{self._long}/HOB-{high:010d}", high, create)
            if ledger is not None:
                return ledger
            high += 1
            await self._open_high(high)

    async def _highs(self) -> list[int]:
        names = await self._store.children(self._long) or []
        return sorted(int(name[4:]) for name in names if re.fullmatch(r"HOB-\d+", name))

    async def _open_high(self, high: int) -> None:
        """Make the next folder, and delete those before the last three: no client needs them."""
        with contextlib.suppress(MetadataConflict):
            await self._store.change(Create(f"{self._long}/HOB-{high:010d}"))
        for old in (await self._highs())[:-KEPT_HIGH_FOLDERS]:
            with contextlib.suppress(MetadataConflict):
                await self._store.change(Delete(f"{self._long}/HOB-{old:010d}"))
