"""Single reads of many entries from one bookie: sent together, answered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.codec.frames import Buffer
from tallystick.errors import TallyError


class ReadRun:
    """What has come so far of one run of reads. Await ``done``; ``close`` when nobody waits any longer."""

    def __init__(self, entries: Sequence[EntryId]) -> None:
        self.entries = entries
        self.parts: list[tuple[list[EntryId], Sequence[Buffer]]] = []  # ids, and entries as stored, digests unchecked
        self._by_id: dict[EntryId, Buffer] = {}  # those of the first so many parts:
        self._parts_by_id = 0
        self.codes: dict[EntryId, Code] = {}  # answers other than OK
        self.errors: dict[EntryId, TallyError] = {}  # no response: unknown
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leave: Callable[[], None] = lambda: None  # set by who sent it
        self._outstanding_count = len(entries)

    @property
    def stored_entries(self) -> Mapping[EntryId, Buffer]:
        """All parts, by id."""
        for entries, data in self.parts[self._parts_by_id :]:
            self._by_id.update(zip(entries, data, strict=True))
        self._parts_by_id = len(self.parts)
        return self._by_id

    def received(self, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        """For the link: good responses."""
        self.parts.append((entries, data))
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
