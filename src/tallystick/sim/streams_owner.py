"""The program that owns a simulated stream, again and again: it opens, appends, rolls over, trims, and hands over."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    EarlierAppendFailed,
    NoSuchStream,
    StreamClosed,
    StreamError,
    StreamFenced,
    StreamFull,
    StreamOwned,
    StreamTerminated,
    TallyError,
)
from tallystick.sim.streams_chunks import PAUSES_S, ChunkAppend
from tallystick.sim.streams_history import Append, Handle, Telling
from tallystick.sim.streams_list_judge import NAME
from tallystick.sim.streams_plan import OwnerPlan
from tallystick.sim.streams_shared import AGAIN_S, FUTILE, Shared

LEAST_PAUSE_S = 0.01  # between two steps
MOST_WAITING = 30  # appends of one owner

_ENDED = (StreamFenced, StreamTerminated, StreamClosed)  # an append that is told so, and every one after it


async def delete(shared: Shared, client: BookKeeper) -> None:
    """Delete the stream at its times, whoever owns it."""
    rng, clock = shared.chance(), asyncio.get_running_loop()
    while shared.deletions and not shared.is_over.is_set():
        await asyncio.sleep(max(AGAIN_S * rng.random(), shared.deletions[0] - clock.time()))
        shared.judge.list.may_be_deleted = True
        try:
            await client.delete_stream(NAME, takeover=rng.random() < 0.7)
        except (*FUTILE, StreamOwned, StreamFenced):
            continue
        except NoSuchStream:
            pass
        del shared.deletions[0]


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
        producer.goes_on(shared.judge.list.deletions)
        owner = Owner(shared, plan, rng, stream, shared.judge.opened(name, after), producer)
        await owner.work()
        if stream.terminated is not None:
            return


@dataclass(eq=False)
class Numbered:
    """One entry of a producer, with the number of its first message. ``is_told``: its outcome is waited for."""

    appends: list[Append]
    sequence: int
    is_told: bool = False


class Producer:
    """Who numbers its appends, in all handles of one would-be owner: it repeats what failed, before it goes on."""

    def __init__(self, name: str) -> None:
        self._name, self._deletions, self.next = name, 0, 0
        self.unresolved: list[Numbered] = []  # in order
        self.resolved: list[Numbered] = []

    @property
    def name(self) -> str:
        """Returns another one when the stream was deleted: nobody knows the numbers of the one before."""
        return f"{self._name}.{self._deletions}"

    def goes_on(self, deletions: int) -> None:
        """It has the stream, which was deleted so often: whoever waited for its appends is gone."""
        if deletions != self._deletions:
            self._deletions = deletions
            self.unresolved, self.resolved = [], []
        for numbered in self.unresolved:
            numbered.is_told = False

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
                while len(under_way := self._under_way()) > MOST_WAITING and not self._is_left_waiting:
                    await self._wait_for(under_way, asyncio.FIRST_COMPLETED)
                if rng.random() < plan.hands_over:
                    break
            if not self._has_ended and rng.random() < 0.5:
                await self._wait_in_storm()
        finally:
            with contextlib.suppress(TallyError):
                await self._stream.close()

    async def _step(self) -> None:
        plan, rng = self._plan, self._random
        for _ in range(rng.randint(1, plan.burst)):
            if rng.random() < plan.batches and self._shared.plan.entry_format != "raw":
                self.append_batch(rng.randint(1, 4))
            elif rng.random() < plan.numbers:
                await self.append_numbered()
            elif self._shared.plan.has_chunks:
                await self._append_slowly()
            else:
                self.append()
        stream, is_race = self._stream, plan.races > 0.0 and rng.random() < plan.races
        calls = [stream.roll_over] if rng.random() < plan.rolls else []
        more = [stream.trim] if rng.random() < plan.trims else []
        await self._try_all([*calls, *more], at_once=is_race)
        if rng.random() < plan.waits:
            await self._wait_in_storm()
        if self._shared.takes_end():
            await self._try_all([stream.roll_over, stream.terminate] if is_race else [stream.terminate], at_once=True)

    async def _try_all(self, calls: Sequence[Callable[[], Awaitable[object]]], *, at_once: bool) -> None:
        if at_once:
            await asyncio.gather(*(self._try(call()) for call in calls))
        else:
            for call in calls:
                await self._try(call())

    async def _try(self, call: Awaitable[object]) -> None:
        try:
            await call
        except _ENDED:
            self._has_ended = True
        except FUTILE:
            pass

    def append(self) -> asyncio.Future[Position] | None:
        """Append one message. Returns None if it was refused at once."""
        telling = self._shared.judge.appending(self._handle)
        if not self._shared.plan.has_chunks:
            return self._tell(telling, None)
        chunks = ChunkAppend(self._stream, telling.append)
        try:
            for _ in range(chunks.count):
                chunks.push()
        except StreamError as error:
            self._refused([telling], error)
            return None
        return self._tell(telling, None, chunks)

    async def _append_slowly(self) -> None:
        """Append one message in chunks, and nothing else meanwhile."""
        telling = self._shared.judge.appending(self._handle)
        chunks = ChunkAppend(self._stream, telling.append)
        try:
            for _ in range(chunks.count):
                await asyncio.sleep(self._random.choice(PAUSES_S))
                chunks.push()
        except StreamError as error:
            self._refused([telling], error)
        else:
            self._tell(telling, None, chunks)

    async def append_numbered(self) -> None:
        """Repeat what failed, in order; if nothing did append more, or repeat what is stored."""
        producer, judge, rng, plan = self._producer, self._shared.judge, self._random, self._plan
        for numbered in [each for each in producer.unresolved if not each.is_told]:
            if not await self._tell_numbered(
                [judge.appending(self._handle, one) for one in numbered.appends], numbered
            ):
                return
        if producer.resolved and rng.random() < plan.repeats:
            numbered = rng.choice(producer.resolved)
            await self._tell_numbered([judge.appending(self._handle, one) for one in numbered.appends], numbered)
        is_batch = plan.numbered_batches > 0.0 and rng.random() < plan.numbered_batches
        if is_batch:
            await asyncio.sleep(0)  # until those before it were appended
        tellings = [judge.appending(self._handle) for _ in range(rng.randint(2, 4) if is_batch else 1)]
        numbered = Numbered([telling.append for telling in tellings], producer.next)
        for index, append in enumerate(numbered.appends):
            append.numbered = producer.name, producer.next + index
        producer.next += len(tellings) - 1 + rng.choice((1, 1, 5))
        producer.unresolved.append(numbered)
        await self._tell_numbered(tellings, numbered)

    async def _tell_numbered(self, tellings: list[Telling], numbered: Numbered) -> bool:
        """Returns False if it was refused at once."""
        if len(tellings) == 1:
            return self._tell(tellings[0], numbered) is not None
        numbered.is_told = True
        self._begin(self._batch(tellings, numbered))
        await asyncio.sleep(0)  # until it was appended: numbers ascend
        return numbered.is_told

    def _tell(
        self, telling: Telling, numbered: Numbered | None, chunks: ChunkAppend | None = None
    ) -> asyncio.Future[Position] | None:
        try:
            if chunks is not None:
                future = chunks.whole()
            elif numbered is None:
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

    def append_batch(self, count: int) -> None:
        """Append messages together; this waits for room."""
        self._begin(self._batch([], None, count))

    def _begin(self, batch: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(batch)
        self._batches[task] = None
        task.add_done_callback(self._batches.pop)

    async def _batch(self, tellings: list[Telling], numbered: Numbered | None, more: int = 0) -> None:
        """Append these messages, and some more, together."""
        judge = self._shared.judge
        tellings = tellings + [judge.appending(self._handle) for _ in range(more)]
        data = [telling.append.data for telling in tellings]
        try:
            if numbered is None:
                positions = await self._stream.append_batch(data)
            else:
                name, sequence = self._producer.name, numbered.sequence
                positions = await self._stream.append_batch(data, producer=name, sequence=sequence)
        except (StreamError, *FUTILE) as error:
            self._refused(tellings, error)
            return
        finally:
            if numbered is not None:
                numbered.is_told = False
        for telling, position in zip(tellings, positions, strict=True):
            judge.acknowledged(telling, position)
        if numbered is not None:
            self._producer.resolve(numbered)

    def _refused(self, tellings: list[Telling], error: BaseException) -> None:
        for telling in tellings:
            self._shared.judge.failed(telling, error)
        if isinstance(error, _ENDED):
            self._has_ended = True
        elif isinstance(error, EarlierAppendFailed) and self._shared.plan.refuses:
            pass  # one that waited for the numbers, and then was refused
        elif not isinstance(error, (StreamFull, *FUTILE)):
            self._shared.judge.fail("S9", f"an append of handle {self._handle.number} ended with {error!r}")

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for anything that was told."""
        return bool(self._under_way())

    def _under_way(self) -> list[asyncio.Future[Any]]:
        return [*self._waiting, *self._batches]

    async def wait(self) -> None:
        """Wait for all that was told."""
        while waiting := self._under_way():
            await asyncio.wait(waiting)

    @property
    def _is_left_waiting(self) -> bool:
        """Whether what waits may wait for ever: for consumers, which have ended."""
        return self._shared.plan.refuses and self._shared.is_over.is_set()

    async def _wait_in_storm(self) -> None:
        """Wait for all that was told, but for what is left waiting."""
        while (waiting := self._under_way()) and not self._is_left_waiting:
            await self._wait_for(waiting, asyncio.ALL_COMPLETED)

    async def _wait_for(self, waiting: list[asyncio.Future[Any]], which: str) -> None:
        if not self._shared.plan.refuses:
            await asyncio.wait(waiting, return_when=which)
            return
        over = asyncio.get_running_loop().create_task(self._shared.is_over.wait())
        await asyncio.wait([*waiting, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
