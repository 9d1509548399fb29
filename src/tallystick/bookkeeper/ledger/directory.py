"""The registered bookies and who they are, kept until the metadata service says that they changed.

Thousands of ledgers that lose a bookie ask at once: what is being read is read once for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from tallystick.bookkeeper.metadata.driver import MetadataDriver, RegisteredBookies
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.registration import auth_offers
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import BookieUnavailable

T = TypeVar("T")


class BookieDirectory:
    """The registered bookies, and where they listen. Call ``close`` at the end."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._driver = driver
        self._bookies: RegisteredBookies | None = None
        self._reading: asyncio.Task[RegisteredBookies] | None = None
        self._identities: dict[BookieId, Creation | None] = {}
        self._identifying: dict[BookieId, asyncio.Task[Creation | None]] = {}
        self._changes = 0
        self._listeners: list[Callable[[], None]] = []
        self._readers: list[Callable[[RegisteredBookies], None]] = []
        self._watch = driver.watch_bookies(self._changed)

    def _changed(self) -> None:
        self._bookies, self._identities, self._identifying = None, {}, {}
        self._changes += 1
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """``listener`` is called on the loop each time the registered bookies have changed."""
        self._listeners.append(listener)

    def on_read(self, reader: Callable[[RegisteredBookies], None]) -> None:
        """``reader`` is called with the registered bookies each time they were read, before who asked for them."""
        self._readers.append(reader)

    async def current(self) -> RegisteredBookies:
        """Return all registered bookies. Raises MetadataError."""
        if self._bookies is not None:
            return self._bookies
        if self._reading is None:
            self._reading = _shared_read(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> RegisteredBookies:
        try:
            while True:
                changes = self._changes
                bookies = await self._driver.bookies()
                if changes == self._changes:  # else it changed while it was read
                    self._bookies = bookies
                    for reader in self._readers:
                        reader(bookies)
                    return bookies
        finally:
            self._reading = None

    async def resolve(self, bookie: BookieId) -> tuple[str, int]:
        """Return host and port. Raises BookieUnavailable for a bookie that is not registered: unknown, never a "no"."""
        address = (await self._registered(bookie)).address
        if address is None:
            raise BookieUnavailable("the bookie is registered without an address", bookie=bookie)
        return address

    async def offers(self, bookie: BookieId) -> Sequence[str]:
        """Return by what a bookie lets a client show who it is; nothing if its registration does not say.

        Raises MetadataError; BookieUnavailable if there is no registration: that says nothing, and no bookie is to be
        taken for one that speaks the weakest alone.
        """
        return auth_offers(await self._registered(bookie))

    async def _registered(self, bookie: BookieId) -> BookieInfo:
        """Raises BookieUnavailable, MetadataError."""
        info = (await self.current()).find(bookie)
        if info is None:
            # It may have come back a moment ago; the news of it can still be under way. Of the others nothing is known
            # to have changed: who asks for them waits for nothing.
            info = (await self._driver.bookies()).find(bookie)
        if info is None:
            raise BookieUnavailable("the bookie is not registered", bookie=bookie)
        return info

    async def identities(self, bookies: Collection[BookieId]) -> Mapping[BookieId, Creation | None]:
        """Return the identities (``bookie_creation``) of these bookies, read since the registrations changed last.

        Another bookie in the place of one has another identity. Raises MetadataError.
        """
        cached = self._identities
        if all([bookie in cached for bookie in bookies]):
            return {bookie: cached[bookie] for bookie in bookies}
        unknown = [bookie for bookie in dict.fromkeys(bookies) if bookie not in cached]
        creations = await asyncio.gather(*(asyncio.shield(self._creation(bookie)) for bookie in unknown))
        identities = {**self._identities, **dict(zip(unknown, creations, strict=True))}
        if any(bookie not in identities for bookie in bookies):  # they were forgotten meanwhile
            return await self.identities(bookies)
        return {bookie: identities[bookie] for bookie in bookies}

    def _creation(self, bookie: BookieId) -> asyncio.Task[Creation | None]:
        """Return a read of it that began since the registrations changed."""
        if bookie not in self._identifying:
            self._identifying[bookie] = _shared_read(self._read_creation(bookie, self._changes))
        return self._identifying[bookie]

    async def _read_creation(self, bookie: BookieId, changes: int) -> Creation | None:
        try:
            creation = await self._driver.bookie_creation(bookie)
            if changes == self._changes:
                self._identities[bookie] = creation
            return creation
        finally:
            if changes == self._changes:
                del self._identifying[bookie]

    def close(self) -> None:
        self._watch.cancel()


def _shared_read(read: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Read in a task of its own: whoever began it may be cancelled, and so may all who wait."""
    task = asyncio.create_task(read)
    task.add_done_callback(lambda reading: reading.cancelled() or reading.exception())
    return task
