"""The registration of a bookie, until it stops or loses it: writable or read-only, drained, what waits, what is in
limbo."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from tallystick.bookkeeper.bookie.folder_room import FOLDERS
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.metadata.driver import BookieRegistration
from tallystick.bookkeeper.wire.registration import LIMBO
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import MetadataConflict, MetadataError
from tallystick.runtime.events import Events

_RETRY_S = 1.0
DELETIONS_WAITING, LEDGERS_AHEAD = "deletionsWaiting", "ledgersAhead"  # properties of the registration
SURPLUS_WAITING = "surplusWaiting"  # ledgers whose entries others have instead, too many at once to be dropped
DAMAGED = "damaged"  # how many entries are stored there and cannot be read
SCRUB = "scrub"  # ``ScrubProgress.shown``
DRAINED = "drained"  # "true": read-only by hand


def with_properties(info: BookieInfo, values: Mapping[str, str]) -> BookieInfo:
    """Return what a registration says, with these properties; without those that are empty."""
    properties = {**info.properties, **values}
    return replace(info, properties={name: value for name, value in properties.items() if value})


class Listing:
    """Keep a registration as the bookie is. ``follow`` and ``ended`` are endless tasks; ``leave`` in the end."""

    def __init__(
        self, bookie: BookieId, registration: BookieRegistration, info: BookieInfo, guard: DiskGuard, events: Events
    ) -> None:
        self._bookie, self._registration, self._guard, self._events = bookie, registration, guard, events
        self.reached = True  # the metadata, when ``look`` was last called
        # What the service has; None while nobody knows: a change whose answer was lost may have been made.
        self._shown: bool | None = guard.read_only
        self._shown_info: BookieInfo | None = info
        self._info, self._reported = info, guard.read_only
        self._cause = guard.reason  # of the mode that was reported last
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    def deletions_wait(self, count: int, ahead: int) -> None:
        """Show how many ledgers wait for their deletion, and how many are newer than the metadata, to whoever lists
        the bookies."""
        self._show({name: str(number or "") for name, number in ((DELETIONS_WAITING, count), (LEDGERS_AHEAD, ahead))})

    def surplus_waits(self, count: int) -> None:
        """Show how many ledgers wait whose entries others have instead."""
        self._show({SURPLUS_WAITING: str(count or "")})

    def in_limbo(self, count: int) -> None:
        """Show of how many ledgers the bookie may lack entries."""
        self._show({LIMBO: str(count or "")})

    def damaged(self, count: int) -> None:
        """Show how many entries are stored and cannot be read."""
        self._show({DAMAGED: str(count or "")})

    def scrubbed(self, progress: str, damaged: int) -> None:
        """Show how far the scrub is, and how many entries cannot be read."""
        self._show({SCRUB: progress, DAMAGED: str(damaged or "")})

    def drained(self) -> None:
        """Show whether the bookie is drained, and be listed so."""
        self._show({DRAINED: "true" if self._guard.drained else ""})

    def _show(self, values: Mapping[str, str]) -> None:
        """Set properties of the registration, without those that are empty."""
        self._info = with_properties(self._info, values)
        self._changed.set()

    def look(self, room: str) -> None:
        """Show the room of the folders, and report that the metadata is reached no longer, or again: clients learn
        first that a bookie is not listed."""
        self._show({FOLDERS: room})
        before, self.reached = self.reached, self._registration.is_reached
        if self.reached and not before:
            self._events.emit("metadata reached again", bookie=self._bookie)
        elif before and not self.reached:
            reason = "what is stored here is served; new ledgers come here until the registration expires"
            self._events.emit("metadata not reached", bookie=self._bookie, reason=reason)

    async def ended(self) -> None:
        """Wait until the registration ends. Raises MetadataError, the reason."""
        await self._registration.loss.wait()
        if self._registration.failure is not None:
            raise self._registration.failure
        raise MetadataConflict("another process registered this bookie's id", bookie=self._bookie)

    async def leave(self) -> None:
        """Remove the registration. Without an answer of the metadata it expires by itself."""
        try:
            await self._registration.close()
        except MetadataError as error:
            self._events.emit("registration not removed", bookie=self._bookie, reason=str(error))

    async def follow(self) -> None:
        """Tell the metadata of each change."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._update()
            except MetadataError as error:
                self._events.emit("registration not changed", read_only=self._guard.read_only, reason=str(error))
                await asyncio.sleep(_RETRY_S)
                self._changed.set()

    async def _update(self) -> None:
        read_only, info = self._guard.read_only, self._info
        if read_only != self._shown:
            self._shown = None
            await self._registration.set_read_only(read_only)
            self._shown = read_only
            if read_only != self._reported:
                self._reported = read_only
                kind = "bookie is read-only" if read_only else "bookie takes writes again"
                self._events.emit(kind, reason=self._guard.reason if read_only else self._cause)
                self._cause = self._guard.reason
        if info != self._shown_info:
            self._shown_info = None
            await self._registration.set_info(info)
            self._shown_info = info
