"""How far a streaming query is, as Spark's checkpoint keeps it. Pure.

::

    {"v": 1, "s": {"tenant/namespace/persistent/topic": [12, 0]}}

Of each stream the ledger and the entry that is read next: what is before is read, so an end is not part of its batch.
[-1, -1] is before all that a stream may get. Streams ascend, so that equal offsets have equal texts. Beside its name a
stream takes 40 bytes at most, in any ledger of up to a hundred billion entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.pipeline.offsets import Offset, content_of, stamped
from tallystick.pipeline.stream.schema import FORMAT

Positions = Mapping[str, Position]


def to_offset(positions: Positions) -> Offset:
    """Returns what Spark stores as JSON."""
    return stamped("s", {stream: [at.ledger, at.entry] for stream, at in sorted(positions.items())})


def from_offset(offset: Any) -> dict[str, Position]:
    """Raises UsageError for one that this version did not write."""
    return content_of(
        offset, "s", FORMAT, lambda content: {str(stream): _position(*place) for stream, place in content.items()}
    )


def _position(ledger: object, entry: object) -> Position:
    if type(ledger) is not int or type(entry) is not int:
        raise ValueError
    position = Position(ledger, entry)
    if position != EARLIEST and min(ledger, entry) < 0:
        raise ValueError
    return position
