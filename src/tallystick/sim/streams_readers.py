"""The programs that read a simulated stream while others own it: some follow it, some look at parts of it."""

from __future__ import annotations

import asyncio
import contextlib

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.reader import StreamReader
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import CorruptEntry, NoSuchPosition, NoSuchStream, PositionTrimmed
from tallystick.sim.streams_history import Positions
from tallystick.sim.streams_list_judge import NAME
from tallystick.sim.streams_shared import AGAIN_S, FUTILE, Shared


async def follow(shared: Shared, name: str, client: BookKeeper) -> None:
    """Read the stream as it grows, through whatever happens, until nobody needs that."""
    following = asyncio.create_task(_follow(shared, name, client))
    await asyncio.wait({following, asyncio.create_task(shared.is_read.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if not following.done():
        following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def _follow(shared: Shared, name: str, client: BookKeeper) -> None:
    tail = Tail(shared, name)
    while True:
        try:
            async with client.read_stream(NAME, entry_format=shared.plan.entry_format) as reader:
                if await tail.read(reader, follow=True):
                    if not shared.judge.list.was_terminated:
                        shared.judge.fail("S5", f"{name} was told that the stream has ended")
                    if not shared.plan.deletions:
                        return  # else another one of its name may begin
        except (*FUTILE, NoSuchStream):
            pass
        await asyncio.sleep(AGAIN_S)


class Tail:
    """What one reader has read, from the begin on."""

    def __init__(self, shared: Shared, name: str) -> None:
        self._shared, self._name = shared, name
        self._last: Position | None = None
        self._start: Position | None = None
        self.content = Positions()

    async def read(self, reader: StreamReader, *, follow: bool) -> bool:
        """Go on behind what was read; over a gap if that was trimmed. Returns whether that is all that there is."""
        judge = self._shared.judge
        try:
            async for message in reader.read(self._start, follow=follow):
                position = message.position
                if self._last is not None and position <= self._last and position.of_entry == self._start:
                    continue  # of a batch of which it had a part
                number = judge.delivered(position, message.data, self._name, message.publish_time)
                judge.gap(self._last, position, self._name)
                self.content.add(position, number)
                self._last, self._start = position, position.of_entry
                self._shared.followed[self._name] = position
        except PositionTrimmed as error:
            judge.trimmed(self._start, error.first, self._name)
            self._start = error.first
            return False
        except CorruptEntry as error:
            judge.fail("S5", f"{self._name} was told of {self._start}: {error!r}")
        except NoSuchPosition as error:
            if not judge.list.deletions or self._start is None or not judge.list.was_trimmed(self._start.ledger):
                judge.fail("S5", f"{self._name} was told of {self._start}: {error!r}")
            self._start = None  # the stream was deleted, and begins anew
            return False
        return True


async def look(shared: Shared, name: str, client: BookKeeper) -> None:
    """Read parts of the stream, again and again, until the faults have ended."""
    rng = shared.chance()
    while not shared.is_over.is_set():
        with contextlib.suppress(NoSuchStream, NoSuchPosition, *FUTILE):
            async with client.read_stream(NAME, entry_format=shared.plan.entry_format) as reader:
                seen = shared.judge.seen.order
                start = rng.choice(seen).of_entry if seen and rng.random() < 0.7 else None
                end = rng.choice(seen).of_entry if seen and rng.random() < 0.3 else None
                last = None
                async for message in reader.read(start, end=end):
                    shared.judge.delivered(message.position, message.data, name, message.publish_time)
                    if last is not None:
                        shared.judge.gap(last, message.position, name)
                    last = message.position
        await asyncio.sleep(AGAIN_S * rng.random())
