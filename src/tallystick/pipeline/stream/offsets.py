"""How far a streaming query is, as Spark's checkpoint keeps it. Pure.

::

    {"v": 1, "s": {"tenant/namespace/persistent/topic": [12, 0]}}

Of each stream the ledger and the entry that is read next: what is before is read, so an end is not part of its batch.
[-1, -1] is before all that a stream may get. Streams ascend, so that equal offsets have equal texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import UsageError

VERSION = 1

Offset = dict[str, Any]
Positions = Mapping[str, Position]


def to_offset(positions: Positions) -> Offset:
    """Returns what Spark stores as JSON."""
    return {
        "v": VERSION,
        "s": {stream: [at.ledger, at.entry] for stream, at in sorted(positions.items())},
    }


def from_offset(offset: Any) -> dict[str, Position]:
    """Raises UsageError for one that this version did not write."""
    version = offset.get("v") if isinstance(offset, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise UsageError(
            "the checkpoint has offsets of a newer tallystick: run the query with that version, or with a checkpoint "
            "of its own",
            offset_version=version,
            newest_known=VERSION,
        )
    try:
        if version != VERSION or set(offset) != {"v", "s"}:
            raise ValueError
        return {str(stream): _position(*place) for stream, place in offset["s"].items()}
    except (AttributeError, TypeError, ValueError):
        raise UsageError("the checkpoint has no offsets of tally-stream", offset=offset) from None


def _position(ledger: object, entry: object) -> Position:
    if type(ledger) is not int or type(entry) is not int:
        raise ValueError
    position = Position(ledger, entry)
    if position != EARLIEST and min(ledger, entry) < 0:
        raise ValueError
    return position
