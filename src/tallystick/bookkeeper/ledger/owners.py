"""Who made a request to a bookie, and hears what became of it; and the response to a lone one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.codec.frames import Buffer
from tallystick.errors import TallyError


class Owner(Protocol):
    """Who made requests. It hears by columns: of all its entries in one socket read or failure, as far as they are one
    run of the same response. No call comes inside the one that sends a request."""

    def received(self, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        """The bookie has done it. ``data`` is what it has stored: a part for each entry that was read, none for those
        that were added; of a batch, which is named by its first entry, a part for each entry from there on."""
        ...

    def refused(self, entries: list[EntryId], code: Code) -> None:
        """The bookie answered with another code than OK."""
        ...

    def failed(self, entries: list[EntryId], error: TallyError) -> None:
        """There was no answer in time, or the connection ended: the bookie may have done it (Q15)."""
        ...


class BookieResponse(NamedTuple):
    """What a bookie answered to one request."""

    code: Code
    entries: Sequence[Buffer] = ()  # as stored, digest not yet checked; those of a batch from its first one on

    @property
    def entry(self) -> Buffer:
        """The entry that a read of one found; only where the code is OK."""
        return self.entries[0]


class Waiter(asyncio.Future[BookieResponse]):
    """The owner of one request, who awaits its response. Cancelling it gives the request up."""

    __slots__ = ()

    def received(self, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        self._resolve(BookieResponse(Code.OK, data))

    def refused(self, entries: list[EntryId], code: Code) -> None:
        self._resolve(BookieResponse(code))

    def failed(self, entries: list[EntryId], error: TallyError) -> None:
        if not self.done():
            self.set_exception(error)

    def _resolve(self, response: BookieResponse) -> None:
        if not self.done():
            self.set_result(response)
