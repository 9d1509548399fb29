"""Cursors of a client that does not close them, and what they read."""

from __future__ import annotations

from typing import Any

from support.listed_streams import readers_of
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.messages import StreamMessage


def cursors_of(client: BookKeeper) -> Cursors:
    """The cursors of a client; ``close`` them."""
    return Cursors(client.stream_context, readers_of(client))


def text(messages: list[StreamMessage]) -> str:
    """What they say, one behind the other."""
    return "".join(message.data.decode() for message in messages)


async def drain(cursor: Cursor, **bounds: Any) -> str:
    """What there is to be read now."""
    return text(await cursor.read(1000, wait=False, **bounds))
