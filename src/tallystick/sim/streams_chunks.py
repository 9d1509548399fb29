"""Messages of a simulated stream that come in chunks, as a broker stores them for its producers: an entry each.

Our owners write no chunks, so who has such a stream appends entries as they are, and all who read read messages. The
chunks of a message come one behind the other, some of them seconds later; nobody goes on with a message when its owner
ends in the middle.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata
from tallystick.sim.streams_history import Append
from tallystick.sim.streams_plan import DEDUP_INTERVAL, StreamsPlan

PART = 0.15  # of the lives that can have chunks, and no limits
MOST_CHUNKS = 4
PAUSES_S = (0.0, 0.0, 0.0, 0.05, 1.5)  # between two of a message: a read may have an end meanwhile


def chunked(plan: StreamsPlan, seed: int) -> StreamsPlan:
    """Returns the plan, or one with chunks. Nothing is trimmed or sought there, which may cut a message in two."""
    if plan.entry_format != "pulsar" or plan.deletions or random.Random(f"chunks {seed}").random() >= PART:
        return plan
    return replace(
        plan,
        has_chunks=True,
        compression=None,
        retention_s=-1.0,
        dedup_interval=DEDUP_INTERVAL,
        owners=tuple(replace(owner, batches=0.0, numbers=0.0, numbered_batches=0.0) for owner in plan.owners),
        cursors=tuple(replace(cursor, seeks=0.0, time_seeks=0.0) for cursor in plan.cursors),
    )


class ChunkAppend:
    """The chunks of one message, which are appended one after the other."""

    def __init__(self, stream: Stream, append: Append) -> None:
        self._stream, self._entries = stream, _entries(append)
        self.count = len(self._entries)
        self._futures: list[asyncio.Future[Position]] = []

    def push(self) -> None:
        """Append one more. Raises StreamError, which leaves a part of the message."""
        future = self._stream.append_nowait(self._entries[len(self._futures)])
        future.add_done_callback(_looked_at)
        self._futures.append(future)

    def whole(self) -> asyncio.Future[Position]:
        """Returns a future of the position of the last one, which fails if any of them does."""
        return asyncio.ensure_future(self._last())

    async def _last(self) -> Position:
        return (await asyncio.gather(*self._futures))[-1]


def _entries(append: Append) -> list[bytes]:
    data, count = append.data, 1 + append.number % MOST_CHUNKS
    size = -(-len(data) // count)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    entries = []
    for index, part in enumerate(parts):
        metadata = MessageMetadata(producer_name="chunks", sequence_id=append.number, publish_time=append.number)
        if len(parts) > 1:
            metadata.uuid, metadata.total_chunk_msg_size = f"{append.number}", len(data)
            metadata.chunk_id, metadata.num_chunks_from_msg = index, len(parts)
        front = metadata.SerializeToString()
        entries.append(len(front).to_bytes(4, "big") + front + part)
    return entries


def _looked_at(future: asyncio.Future[Position]) -> None:
    if not future.cancelled():
        future.exception()
