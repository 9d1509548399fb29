"""The program that owns a simulated stream, again and again: it opens, appends, rolls over, trims, and hands over."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    StreamClosed,
    StreamError,
    StreamFenced,
    StreamFull,
    StreamOwned,
    StreamTerminated,
    TallyError,
)
from tallystick.sim.streams_history import Append, Handle, Telling
from tallystick.sim.streams_list_judge import NAME
from tallystick.sim.streams_plan import OwnerPlan
from tallystick.sim.streams_shared import AGAIN_S, FUTILE, Shared

LEAST_PAUSE_S = 0.01  # between two steps
MOST_WAITING = 30  # appends of one owner

_ENDED = (StreamFenced, StreamTerminated, StreamClosed)  # an append that is told so, and every one after it


async def own(shared: Shared, plan: OwnerPlan, producer: Producer, name: str, client: BookKeeper) -> None:
    """Own the stream whenever that is possible, until the faults have ended."""
    rng = shared.chance()
    while not shared.is_over.is_set():
        after = len(shared.judge.handles)
        try:
            stream = await client.open_stream(NAME, settings=shared.settings, takeover=rng.random() < plan.takes_over)
        except (*FUTILE, StreamOwned, StreamFenced):
            await asyncio.sleep(AGAIN_S * rng.random())
            continue
        for numbered in producer.unresolved:
            numbered.is_told = False  # whoever waited for it is gone
        owner = Owner(shared, plan, rng, stream, shared.judge.opened(name, after), producer)
        await owner.work()
        if stream.terminated is not None:
            return


@dataclass(eq=False)
class Numbered:
    """One append of a producer with its number. ``is_told``: its outcome is waited for."""

    append: Append
    sequence: int
    is_told: bool = False


class Producer:
    """Who numbers its appends, in all handles of one would-be owner: it repeats what failed, before it goes on."""

    def __init__(self, name: str) -> None:
        self.name, self.next = name, 0
        self.unresolved: list[Numbered] = []  # in order
        self.resolved: list[Numbered] = []

    def resolve(self, numbered: Numbered) -> None:
        """It is stored."""
        if numbered in self.unresolved:
            self.unresolved.remove(numbered)
            self.resolved.append(numbered)


class Owner:
    """Who has the stream."""

    def __init__(
        self,
        shared: Shared,
        plan: OwnerPlan,
        rng: random.Random,
        stream: Stream,
        handle: Handle,
        producer: Producer,
    ) -> None:
        self._shared, self._plan, self._random, self._stream, self._handle = shared, plan, rng, stream, handle
        self._producer = producer
        self._waiting: dict[asyncio.Future[Position], None] = {}
        self._batches: dict[asyncio.Task[None], None] = {}
        self._has_ended = False

    async def work(self) -> None:
        """Append until somebody else has the stream, or it is handed over."""
        plan, shared, rng = self._plan, self._shared, self._random
        try:
            while not (shared.is_over.is_set() or self._has_ended):
                await self._step()
                await asyncio.sleep(LEAST_PAUSE_S + plan.pause_s * rng.random())
                while len(under_way := self._under_way()) > MOST_WAITING:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                if rng.random() < plan.hands_over:
                    break
            if not self._has_ended and rng.random() < 0.5:
                await self.wait()
        finally:
            with contextlib.suppress(TallyError):
                await self._stream.close()

    async def _step(self) -> None:
        plan, rng = self._plan, self._random
        for _ in range(rng.randint(1, plan.burst)):
            if rng.random() < plan.batches and self._shared.plan.entry_format != "raw":
                self._append_batch(rng.randint(1, 4))
            elif rng.random() < plan.numbers:
                self._append_numbered()
            else:
                self.append()
        if rng.random() < plan.rolls:
            await self._try(self._stream.roll_over())
        if rng.random() < plan.trims:
            await self._try(self._stream.trim())
        if rng.random() < plan.waits:
            await self.wait()
        if self._shared.takes_end():
            await self._try(self._stream.terminate())

    async def _try(self, call: Awaitable[object]) -> None:
        try:
            await call
        except _ENDED:
            self._has_ended = True
        except FUTILE:
            pass

    def append(self) -> asyncio.Future[Position] | None:
        """Append one message. Returns None if it was refused at once."""
        return self._tell(self._shared.judge.appending(self._handle), None)

    def _append_numbered(self) -> None:
        """Repeat what failed, in order; if nothing did append another, or repeat what is stored."""
        producer, judge = self._producer, self._shared.judge
        for numbered in [each for each in producer.unresolved if not each.is_told]:
            if not self._tell(judge.appending(self._handle, numbered.append), numbered):
                return
        if producer.resolved and self._random.random() < self._plan.repeats:
            numbered = self._random.choice(producer.resolved)
            self._tell(judge.appending(self._handle, numbered.append), numbered)
        telling = judge.appending(self._handle)
        numbered = Numbered(telling.append, producer.next)
        producer.next += self._random.choice((1, 1, 5))
        producer.unresolved.append(numbered)
        self._tell(telling, numbered)

    def _tell(self, telling: Telling, numbered: Numbered | None) -> asyncio.Future[Position] | None:
        try:
            if numbered is None:
                future = self._stream.append_nowait(telling.append.data)
            else:
                future = self._stream.append_nowait(
                    telling.append.data, producer=self._producer.name, sequence=numbered.sequence
                )
                numbered.is_told = True
        except StreamError as error:
            self._refused([telling], error)
            return None
        self._waiting[future] = None
        future.add_done_callback(partial(self._answered, telling, numbered))
        return future

    def _answered(self, telling: Telling, numbered: Numbered | None, future: asyncio.Future[Position]) -> None:
        self._waiting.pop(future, None)
        if numbered is not None:
            numbered.is_told = False
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            return self._refused([telling], error)
        self._shared.judge.acknowledged(telling, future.result())
        if numbered is not None:
            self._producer.resolve(numbered)

    def _append_batch(self, count: int) -> None:
        task = asyncio.get_running_loop().create_task(self._batch(count))
        self._batches[task] = None
        task.add_done_callback(self._batches.pop)

    async def _batch(self, count: int) -> None:
        judge = self._shared.judge
        tellings = [judge.appending(self._handle) for _ in range(count)]
        try:
            positions = await self._stream.append_batch([telling.append.data for telling in tellings])
        except (StreamError, *FUTILE) as error:
            self._refused(tellings, error)
            return
        for telling, position in zip(tellings, positions, strict=True):
            self._shared.judge.acknowledged(telling, position)

    def _refused(self, tellings: list[Telling], error: BaseException) -> None:
        for telling in tellings:
            self._shared.judge.failed(telling, error)
        if isinstance(error, _ENDED):
            self._has_ended = True
        elif not isinstance(error, (StreamFull, *FUTILE)):
            self._shared.judge.fail("S9", f"an append of handle {self._handle.number} ended with {error!r}")

    def _under_way(self) -> list[asyncio.Future[Any]]:
        return [*self._waiting, *self._batches]

    async def wait(self) -> None:
        """Wait for all that was told."""
        while waiting := self._under_way():
            await asyncio.wait(waiting)
