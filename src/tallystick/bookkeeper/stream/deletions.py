"""The ledgers that streams have no more, and those that they never had: deleted in the background, few at a time.

Each has a note in the metadata, which goes when the ledger is gone. An error leaves the note: the next owner of the
stream finds it, or who deletes it. Before a ledger is deleted it is condemned, and the list is read once more: an owner
that was about to list it does so before that, or never.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.wire.ledger_runs import find
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import NoSuchLedger, NoSuchStream, TallyError

AT_ONCE = 4  # streams


class Deletions:
    """The deletions of a client. Must be made on the running event loop; ``close`` it."""

    def __init__(self, ledgers: LedgerClient, catalog: StreamCatalog, context: LedgerContext) -> None:
        self._ledgers, self._catalog, self._context = ledgers, catalog, context
        self._waiting: deque[tuple[str, tuple[LedgerId, ...]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def add(self, stream: str, ledgers: Collection[LedgerId]) -> None:
        """Delete these soon. No list of the stream can ever have them again, and each has a note."""
        if ledgers and not self._is_closed:
            self._waiting.append((stream, tuple(ledgers)))
            if len(self._tasks) < AT_ONCE:
                task = asyncio.get_running_loop().create_task(self._run())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def done(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Stop; the notes stay."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            stream, ledgers = self._waiting.popleft()
            try:
                await self.delete(stream, ledgers)
            except TallyError as error:
                self._context.events.emit("stream ledgers not deleted", stream=stream, ledgers=ledgers, reason=error)

    async def delete(self, stream: str, ledgers: Collection[LedgerId]) -> None:
        """Delete these now, and their notes, but for those that have none, or that the list has. Raises
        MetadataError."""
        condemned = [ledger for ledger in ledgers if await self._catalog.condemn(stream, ledger)]
        try:
            info = (await self._catalog.read(stream, synced=True)).value
        except NoSuchStream:
            info = None
        for ledger in condemned:
            if info is None or find(info.ledgers, ledger) is None:
                with contextlib.suppress(NoSuchLedger):
                    await self._ledgers.delete_ledger(ledger)
                await self._catalog.gone(stream, [ledger])
        if info is None:
            await self._catalog.forget_notes(stream)
