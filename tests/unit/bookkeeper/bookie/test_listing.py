"""What the metadata has of a bookie follows what it is, also where nobody knows whether a change was made."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.listing import Listing
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.errors import MetadataError, MetadataUncertain
from tallystick.runtime.events import Events
from tallystick.sim.virtual.loop import VirtualLoop

INFO = BookieInfo.at("127.0.0.1", 3181)


class UnsureRegistration:
    """Whose first change of each kind is made, and its answer lost."""

    def __init__(self) -> None:
        self.loss = asyncio.Event()
        self.failure: Exception | None = None
        self.read_only, self.info = False, INFO
        self._unsure = ["read-only", "info"]

    @property
    def is_reached(self) -> bool:
        return True

    async def set_read_only(self, read_only: bool) -> None:
        self.read_only = read_only
        self._lose("read-only")

    async def set_info(self, info: BookieInfo) -> None:
        self.info = info
        self._lose("info")

    def _lose(self, what: str) -> None:
        if what in self._unsure:
            self._unsure.remove(what)
            raise MetadataUncertain("no answer")

    async def close(self) -> None:
        """Nothing is kept up."""


class SlowRegistration(UnsureRegistration):
    """Answers after a second."""

    def __init__(self) -> None:
        super().__init__()
        self._unsure.clear()

    async def set_read_only(self, read_only: bool) -> None:
        await asyncio.sleep(1)
        await super().set_read_only(read_only)

    async def set_info(self, info: BookieInfo) -> None:
        await asyncio.sleep(1)
        await super().set_info(info)


def test_a_listing_that_may_have_been_changed_is_set_right_though_the_wish_is_as_before() -> None:
    loop, heard = VirtualLoop(max_seconds=60.0, max_turns=10_000), list[str]()

    async def change() -> None:
        registration, guard = UnsureRegistration(), DiskGuard(0.95)
        listing = Listing("b0", registration, INFO, guard, Events(lambda event: heard.append(event.kind)))
        loop.create_task(listing.follow())
        guard.filled("commit")
        listing.deletions_wait(3, 0)
        await asyncio.sleep(0.5)
        assert registration.read_only and heard == ["registration not changed"]
        guard.written("commit")  # before it is tried again
        await asyncio.sleep(5)
        assert not registration.read_only and registration.info.properties == {"deletionsWaiting": "3"}
        listing.deletions_wait(0, 0)
        await asyncio.sleep(5)
        assert registration.info == INFO

    loop.run_until_complete(change())
    loop.abandon()
    assert "bookie takes writes again" not in heard, "it was never said that it took none"


def test_what_waits_is_set_right_though_it_is_as_before_when_it_is_tried_again() -> None:
    loop = VirtualLoop(max_seconds=60.0, max_turns=10_000)

    async def change() -> None:
        registration, guard = UnsureRegistration(), DiskGuard(0.95)
        registration._unsure.remove("read-only")
        listing = Listing("b0", registration, INFO, guard, Events())
        loop.create_task(listing.follow())
        listing.deletions_wait(3, 0)
        await asyncio.sleep(0.5)
        assert registration.info.properties == {"deletionsWaiting": "3"}, "it was made, and the answer lost"
        listing.deletions_wait(0, 0)  # before it is tried again
        await asyncio.sleep(5)
        assert registration.info == INFO

    loop.run_until_complete(change())
    loop.abandon()


def test_what_else_a_registration_says_stays_beside_what_waits() -> None:
    loop = VirtualLoop(max_seconds=60.0, max_turns=10_000)

    async def change() -> None:
        registration, info = SlowRegistration(), replace(INFO, properties={"rack": "r1"})
        listing = Listing("b0", registration, info, DiskGuard(0.95), Events())
        loop.create_task(listing.follow())
        listing.deletions_wait(3, 2)
        await asyncio.sleep(5)
        assert registration.info.properties == {"rack": "r1", "deletionsWaiting": "3", "ledgersAhead": "2"}
        listing.deletions_wait(0, 0)
        await asyncio.sleep(5)
        assert registration.info == info

    loop.run_until_complete(change())
    loop.abandon()


def test_why_a_registration_was_lost_is_what_ends_the_bookie() -> None:
    loop = VirtualLoop(max_seconds=60.0, max_turns=10_000)

    async def lose(failure: MetadataError | None, match: str) -> None:
        registration = SlowRegistration()
        listing = Listing("b0", registration, INFO, DiskGuard(0.95), Events())
        lost = asyncio.ensure_future(listing.ended())
        await asyncio.sleep(1)
        assert not lost.done()
        registration.failure = failure
        registration.loss.set()
        with pytest.raises(MetadataError, match=match):
            await lost

    loop.run_until_complete(lose(MetadataError("the disk of the service is full"), "the disk of the service is full"))
    loop.run_until_complete(lose(None, "another process registered this bookie's id"))
    loop.abandon()


def test_a_listing_follows_what_changes_while_it_is_told() -> None:
    """The service has what it was sent, not what the bookie has become meanwhile."""
    loop = VirtualLoop(max_seconds=60.0, max_turns=10_000)

    async def change() -> None:
        registration, guard = SlowRegistration(), DiskGuard(0.95)
        listing = Listing("b0", registration, INFO, guard, Events())
        loop.create_task(listing.follow())
        guard.filled("commit")
        listing.deletions_wait(3, 0)
        await asyncio.sleep(0.5)
        guard.written("commit")
        listing.changed()
        await asyncio.sleep(1)
        listing.deletions_wait(0, 0)
        await asyncio.sleep(5)
        assert not registration.read_only and registration.info == INFO

    loop.run_until_complete(change())
    loop.abandon()
