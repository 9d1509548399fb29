"""Single reads of many entries from one bookie: sent together, answered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.codec.frames import Buffer
from tallystick.errors import TallyError


class ReadRun:
    """What has come so far of one run of reads. Await ``done``; ``close`` when nobody waits any longer."""

    def __init__(self, entries: Sequence[EntryId]) -> None:
        self.entries = entries
        self.stored_entries: dict[EntryId, Buffer] = {}  # as stored, digest not yet checked
        self.codes: dict[EntryId, Code] = {}  # answers other than OK
        self.errors: dict[EntryId, TallyError] = {}  # no response: unknown
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leave: Callable[[], None] = lambda: None  # set by who sent it
        self._outstanding_count = len(entries)

    def received(self, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        """For the link: good responses."""
        self.stored_entries.update(zip(entries, data, strict=True))
        self._count(len(entries))

    def refused(self, entries: list[EntryId], code: Code) -> None:
        """For the link: the bookie answered with another code."""
        self.codes.update(dict.fromkeys(entries, code))
        self._count(len(entries))

    def failed(self, entries: list[EntryId], error: TallyError) -> None:
        """For the link: no answer in time, or the connection ended."""
        self.errors.update(dict.fromkeys(entries, error))
        self._count(len(entries))

    def close(self) -> None:
        """Late responses go to nobody."""
        self.leave()
        self.done.cancel()

    def _count(self, entries: int) -> None:
        self._outstanding_count -= entries
        if not self._outstanding_count and not self.done.done():
            self.done.set_result(None)
