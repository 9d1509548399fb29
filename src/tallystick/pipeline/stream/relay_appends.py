"""What the driver does with the frames of a task: it appends their entries, in order, and answers.

Tasks are the driver's own, and may still be very many, stop in the middle, or send and never read. So of all of them
one at a time has a turn of the loop, no frame is kept as a whole, and little is read that is not appended.
"""

from __future__ import annotations

import asyncio

from tallystick.bookkeeper.stream.splice.attempt import MOST_MESSAGES, looked_at
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import Unavailable, UsageError
from tallystick.pipeline.stream.relay import AT_ONCE, LONGEST_FRAME, SIZE_BYTES, frame_size

_IN_TURN = 64  # entries of a task that are appended in one turn of the loop, and no other task's
_LONG_BYTES = 256 * 1024  # an entry that is longer takes much memory until all of it is there
_LONG_AT_ONCE = 8
_LONG_S = 60.0  # for one

Appends = list[asyncio.Future[Position]]  # of one frame


class Turns:
    """Of all tasks one at a time has a turn of the loop, and few have entries under way that take much memory."""

    def __init__(self) -> None:
        self._turn, self._long = asyncio.Lock(), asyncio.Semaphore(_LONG_AT_ONCE)

    async def next(self) -> None:
        """Wait for a turn of the loop; it ends where the task waits for anything."""
        async with self._turn:
            await asyncio.sleep(0)

    async def read(self, reader: asyncio.StreamReader, size: int) -> bytes:
        """Returns the next bytes of a task. Raises Unavailable for one that stops in the middle of very many."""
        if size <= _LONG_BYTES:
            return await reader.readexactly(size)
        async with self._long:
            try:
                async with asyncio.timeout(_LONG_S):
                    return await reader.readexactly(size)
            except TimeoutError:
                raise Unavailable("a task stopped in the middle of a message", bytes=size, seconds=_LONG_S) from None


async def append_all(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turns: Turns) -> None:
    """Raises what an append failed with, also while the task is silent."""
    appends: asyncio.Queue[Appends] = asyncio.Queue(AT_ONCE)  # who sends more frames than that is not read from
    parts = [
        asyncio.create_task(_append(stream, reader, appends, turns)),
        asyncio.create_task(_answer(appends, writer)),
    ]
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


async def _append(stream: Stream, reader: asyncio.StreamReader, appends: asyncio.Queue[Appends], turns: Turns) -> None:
    """One entry after another: no frame is kept as a whole."""
    while size := frame_size(await _some(reader, SIZE_BYTES)):
        if size > LONGEST_FRAME:
            raise UsageError("a frame is too long", bytes=size, max_bytes=LONGEST_FRAME)
        futures: Appends = []
        while size:
            if len(futures) % _IN_TURN == 0:
                await turns.next()
            entry_size = frame_size(await reader.readexactly(SIZE_BYTES))
            size -= SIZE_BYTES + entry_size
            if size < 0 or len(futures) == MOST_MESSAGES:
                raise UsageError(
                    "a frame has other entries than a task sends", entries=len(futures), most_entries=MOST_MESSAGES
                )
            stream.check_size(entry_size)
            future = await stream.append_encoded(await turns.read(reader, entry_size))
            future.add_done_callback(looked_at)
            futures.append(future)
        await appends.put(futures)


async def _some(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return bytes(size)  # the task has ended


async def _answer(appends: asyncio.Queue[Appends], writer: asyncio.StreamWriter) -> None:
    while True:
        for future in await appends.get():
            await asyncio.shield(future)  # it goes on, whatever becomes of the task
        writer.write(b"\n")
        await writer.drain()  # who reads no answers gets no more
