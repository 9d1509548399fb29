"""How long the list of a stream may become by what sinks do: each commit makes it longer, and each application."""

from __future__ import annotations

from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.wire.stream_lists import list_encoding
from tallystick.bookkeeper.wire.stream_values import StreamInfo
from tallystick.errors import UsageError
from tallystick.runtime.turn_steps import in_turns

MOST_LIST_BYTES = 768 * 1024  # as it is stored: ZooKeeper takes a megabyte, and Pulsar needs room for its own change
LONG_LIST_BYTES = MOST_LIST_BYTES // 2  # from here on each commit says so


async def require_short(context: StreamContext, stream: str, info: StreamInfo) -> None:
    """Raises UsageError for a list that is too long to be stored, and says so of one that soon will be."""
    size = len(await in_turns(list_encoding(info)))
    if size > MOST_LIST_BYTES:
        raise UsageError(
            "the list of this stream is too long for another commit or application: let retention delete what is "
            "old, commit less often (a longer trigger), or give up exactly-once (an owner appends to one ledger for "
            "hours)",
            stream=stream,
            ledgers=len(info.ledgers),
            bytes=size,
            max_bytes=MOST_LIST_BYTES,
        )
    if size > LONG_LIST_BYTES:
        context.context.events.emit(
            "stream list long", stream=stream, ledgers=len(info.ledgers), bytes=size, max_bytes=MOST_LIST_BYTES
        )
