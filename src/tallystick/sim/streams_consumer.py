"""The program that consumes a simulated stream by a durable cursor: it reads, acknowledges, forgets, goes back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import (
    NoSuchCursor,
    NoSuchPosition,
    NoSuchStream,
    PositionTrimmed,
    StreamClosed,
    StreamFenced,
    StreamOwned,
    TallyError,
)
from tallystick.sim.streams_cursor_judge import CursorHandle, CursorHistory
from tallystick.sim.streams_list_judge import NAME
from tallystick.sim.streams_owner import LEAST_PAUSE_S
from tallystick.sim.streams_plan import CursorPlan
from tallystick.sim.streams_shared import AGAIN_S, FUTILE, Shared, again

READ_S = 1.0  # a read waits so long for a message
CURSOR_ERRORS = (NoSuchStream, NoSuchCursor, StreamOwned, StreamFenced, StreamClosed, *FUTILE)


async def consume(shared: Shared, plan: CursorPlan, name: str, client: BookKeeper) -> None:
    """Own the cursor whenever that is possible, until the faults have ended."""
    rng = shared.chance()
    history = shared.judge.cursor(plan.name)
    while not shared.is_over.is_set():
        handle = history.opened()
        with contextlib.suppress(*CURSOR_ERRORS), _of_deleted(shared):
            takeover = rng.random() < plan.takes_over
            cursor = await client.cursor(NAME, plan.name, takeover=takeover, entry_format=shared.plan.entry_format)
            try:
                await Consumer(shared, plan, rng, cursor, history, handle).work(name)
            finally:
                with contextlib.suppress(TallyError):
                    await cursor.close()
            if plan.deletes > 0.0 and rng.random() < plan.deletes:
                await client.delete_cursor(NAME, plan.name)
        await asyncio.sleep(AGAIN_S * rng.random())


@contextlib.contextmanager
def _of_deleted(shared: Shared) -> Iterator[None]:
    """Let it pass that a position is not there which a deletion of the stream took away."""
    try:
        yield
    except NoSuchPosition as error:
        position = error.fields["position"]
        if not shared.judge.list.deletions or not shared.judge.list.was_trimmed(position.ledger):
            raise


class Consumer:
    """Who has the cursor."""

    def __init__(
        self,
        shared: Shared,
        plan: CursorPlan,
        rng: random.Random,
        cursor: Cursor,
        history: CursorHistory,
        handle: CursorHandle,
    ) -> None:
        self._shared, self._plan, self._random = shared, plan, rng
        self._cursor, self._history, self._handle = cursor, history, handle

    async def work(self, name: str) -> None:
        """Consume until somebody else has the cursor, or the faults have ended."""
        plan, rng = self._plan, self._random
        while not self._shared.is_over.is_set():
            positions = await self.read(name)
            if positions:
                await self._acknowledge(positions)
            if rng.random() < plan.seeks:
                await self._go_back()
            await asyncio.sleep(LEAST_PAUSE_S + plan.pause_s * rng.random())
            if plan.time_seeks > 0.0 and rng.random() < plan.time_seeks:
                await self._go_back_in_time()
            if rng.random() < plan.leaves:
                return

    async def read(self, name: str, *, wait: bool = True) -> list[Position]:
        """Returns where the next messages are, if there are any: in time, or (not ``wait``) now."""
        try:
            async with asyncio.timeout(READ_S if wait else None):
                messages = await self._cursor.read(self._plan.most, wait=wait)
        except TimeoutError:
            return []
        for message in messages:
            self._shared.judge.delivered(message.position, message.data, name, message.publish_time)
            self._history.delivered(self._handle, message.position)
        return [message.position for message in messages]

    async def _acknowledge(self, positions: list[Position]) -> None:
        rng = self._random
        if rng.random() < self._plan.singles:
            chosen = [position for position in positions if rng.random() >= self._plan.forgets]
            rng.shuffle(chosen)
            await asyncio.gather(*(self._ack(position) for position in chosen))
        else:
            await self.ack_up_to(rng.choice(positions))

    async def _go_back(self) -> None:
        """Go back to a message that was read by somebody."""
        order = self._shared.judge.seen.order
        if not order:
            return
        position = self._random.choice(order)
        clock = asyncio.get_running_loop()
        ask = self._history.moving(self._handle, position, position, clock.time())
        with contextlib.suppress(PositionTrimmed):
            await self._cursor.seek(position)
            self._history.moved(self._handle, ask, position, clock.time())

    async def _go_back_in_time(self) -> None:
        """Go back to when a message was published that was read by somebody: there may be others of that time."""
        judge, clock = self._shared.judge, asyncio.get_running_loop()
        if not judge.published:
            return
        time_ms = self._random.choice([*judge.published.values()])
        low, high = judge.between_times(time_ms)
        ask = self._history.moving(self._handle, low, high, clock.time())
        await self._cursor.seek(time=time_ms)
        judge.sought(time_ms, at := self._cursor.read_position)
        self._history.moved(self._handle, ask, at, clock.time())

    async def _ack(self, position: Position) -> None:
        if self._plan.lag_s > 0.0:
            await asyncio.sleep(self._plan.lag_s * self._random.random())
        ask = self._history.asking(self._handle, position, up_to=False)
        await self._cursor.ack(position)
        self._history.acknowledged(ask)

    async def ack_up_to(self, position: Position) -> None:
        """Acknowledge all up to a message, also what was forgotten."""
        ask = self._history.asking(self._handle, position, up_to=True)
        await self._cursor.ack_up_to(position)
        self._history.acknowledged(ask)


async def drain(shared: Shared, plan: CursorPlan, name: str, client: BookKeeper) -> None:
    """Consume all that is left: the last one who opens the cursor gets all that nobody acknowledged."""
    history, last = shared.judge.cursor(plan.name), shared.judge.last_acked()
    handle = history.opened()
    cursor = await again(lambda: client.cursor(NAME, plan.name, entry_format=shared.plan.entry_format))
    consumer = Consumer(shared, plan, shared.chance(), cursor, history, handle)
    await cursor.refresh()
    while positions := await consumer.read(name, wait=False):
        last = max(positions[-1], last or EARLIEST)  # there may be more than anybody knows to be stored
    history.ended(handle)
    if last is not None:
        await consumer.ack_up_to(last)
        # An append that waited for a smaller backlog has come since, perhaps.
        if (backlog := await cursor.refresh()) and (shared.judge.last_acked() or EARLIEST) <= last:
            shared.judge.fail("S6", f"{cursor!r} has a backlog of {backlog}, and all is acknowledged")
    await cursor.close()
