"""What a query leaves out with ``failOnDataLoss=false``: it is said, and the rest is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.bookkeeper.ledger.ranges import Range, parts_left
from tallystick.errors import EntryLost
from tallystick.pipeline.notes import note


def ranges_left(ranges: Iterable[Range], format_name: str) -> Iterator[Range]:
    """Yields the parts of ranges that are not lost, and notes the others."""
    for part in parts_left(ranges):
        if isinstance(part, EntryLost):
            note(format_name, f"lost entries are left out: {part}")
        else:
            yield part
