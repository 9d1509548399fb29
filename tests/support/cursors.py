"""Cursors of a client that does not close them, streams for them, and what they read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from support.listed_streams import NAME, readers_of
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream


def cursors_of(client: BookKeeper) -> Cursors:
    """The cursors of a client; ``close`` them."""
    return Cursors(client.stream_context, readers_of(client))


@contextlib.asynccontextmanager
async def filled_stream(
    cluster: SmallCluster, settings: StreamSettings, messages: Iterable[bytes]
) -> AsyncIterator[Stream]:
    """The owner of a stream with these messages, which is idle by now: others know all of them."""
    async with cluster.client(1).open_stream(NAME, settings=settings) as stream:
        for data in messages:
            await stream.append(data)
        await asyncio.sleep(0.3)  # the idle owner says how far it is
        yield stream


def text(messages: list[StreamMessage]) -> str:
    """What they say, one behind the other."""
    return "".join(message.data.decode() for message in messages)


async def drain(cursor: Cursor, **bounds: Any) -> str:
    """What there is to be read now."""
    return text(await cursor.read(1000, wait=False, **bounds))
