"""The registered bookies and who they are, kept until the metadata service says that they changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from tallystick.bookkeeper.metadata.driver import Bookies, MetadataDriver
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import BookieUnavailable


class BookieDirectory:
    """Who is registered, and where they listen. Call ``close`` at the end."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._driver = driver
        self._known: Bookies | None = None
        self._identities: dict[BookieId, Creation | None] = {}
        self._changes = 0
        self._listeners: list[Callable[[], None]] = []
        self._watch = driver.watch_bookies(self._changed)

    def _changed(self) -> None:
        self._known, self._identities = None, {}
        self._changes += 1
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """``listener`` is called on the loop each time the registered bookies have changed."""
        self._listeners.append(listener)

    async def current(self) -> Bookies:
        """All that are registered. Raises MetadataError."""
        while self._known is None:
            changes = self._changes
            found = await self._driver.bookies()
            if changes == self._changes:  # else it changed while it was read
                self._known = found
        return self._known

    async def resolve(self, bookie: BookieId) -> tuple[str, int]:
        """Host and port. Raises BookieUnavailable for one that is not registered: unknown, which is never a "no"."""
        info = (await self.current()).find(bookie)
        if info is None:
            # It may have come back a moment ago; the news of it can still be under way.
            self._known = None
            info = (await self.current()).find(bookie)
        address = info.address if info else None
        if address is None:
            raise BookieUnavailable("the bookie is not registered", bookie=bookie)
        return address

    async def identities(self, bookies: Collection[BookieId]) -> Mapping[BookieId, Creation | None]:
        """Who these are (``bookie_creation``), or were when last asked since the registrations changed.

        Whoever takes the place of one later has another identity. Raises MetadataError.
        """
        known = self._identities
        if all([bookie in known for bookie in bookies]):
            return {bookie: known[bookie] for bookie in bookies}
        changes = self._changes
        unknown = [bookie for bookie in dict.fromkeys(bookies) if bookie not in self._identities]
        read = await asyncio.gather(*map(self._driver.bookie_creation, unknown))
        found = {**self._identities, **dict(zip(unknown, read, strict=True))}
        if changes == self._changes:
            self._identities = found
        elif any(bookie not in found for bookie in bookies):  # they were forgotten meanwhile
            return await self.identities(bookies)
        return {bookie: found[bookie] for bookie in bookies}

    def close(self) -> None:
        self._watch.cancel()
