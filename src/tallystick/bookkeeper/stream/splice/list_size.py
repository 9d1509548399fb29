"""How long the list of a stream may become by what sinks do: each commit makes it longer, and each application."""

from __future__ import annotations

from typing import NamedTuple

from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.splice.record import RECORD_KEY
from tallystick.bookkeeper.wire.stream_lists import list_encoding
from tallystick.bookkeeper.wire.stream_values import StreamInfo
from tallystick.errors import UsageError
from tallystick.runtime.turn_steps import in_turns

MOST_LIST_BYTES = 768 * 1024  # as it is stored: ZooKeeper takes a megabyte, and Pulsar needs room for its own change
_LEDGER_BYTES = 20  # about, of a listed ledger, before the list is compressed
LONG_LIST_BYTES = MOST_LIST_BYTES // 2  # from here on each commit says so


class _Records(NamedTuple):
    applications: int
    bytes: int


async def require_short(context: StreamContext, stream: str, info: StreamInfo) -> None:
    """Raises UsageError for a list that is too long to be stored, and says so of one that soon will be."""
    size = len(await in_turns(list_encoding(info)))
    if size > MOST_LIST_BYTES and (records := _records(info)).bytes > _LEDGER_BYTES * len(info.ledgers):
        raise UsageError(
            f"the list of this stream is too long: it has {records.applications:,} applications, whose records are "
            "kept: forget those that are not needed (`tally stream forget-sink`), and keep one name for each job, "
            "whose batches have numbers (application, or txnAppId with an ascending txnVersion)",
            stream=stream,
            ledgers=len(info.ledgers),
            bytes=size,
            max_bytes=MOST_LIST_BYTES,
        )
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


def _records(info: StreamInfo) -> _Records:
    """Returns what applications have in the list."""
    records = [len(key) + len(value) for key, value in info.properties.items() if key.startswith(RECORD_KEY)]
    return _Records(len(records), sum(records))
