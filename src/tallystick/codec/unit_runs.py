"""Where the messages of a pull are in the log, by the units of a queue: few runs of bytes, however many messages.

``store.units`` has the form of a unit.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence

from tallystick.codec.implementation import with_twin

_UNIT = struct.Struct(">qiq")  # physical offset, record size, tags code
_FILLER_SIZE = 0x7FFFFFFF

Runs = list[tuple[int, int]]  # from a physical offset up to another


@with_twin
def runs_of_units(
    units: bytes,
    first: int,
    end: int,
    file_bytes: int,
    recent: int,
    limits: Sequence[int],
    tags: Container[int] | None,
) -> tuple[Runs, int, int, int, int, bool]:
    """The messages of the first units, as many as a response takes, at least one if there is one.

    The log has bytes from ``first`` up to ``end``, in files of ``file_bytes``. ``limits`` are how many messages and
    bytes may be read from the physical offset ``recent`` on, and how many before it. Only messages with one of the
    ``tags`` codes count, if any are given.

    Returns the runs, none across a border of files; the messages and bytes in them; how many units were passed; the
    physical offset of the last unit that was looked at, 0 without any; whether a message before the first in the runs
    is not in the log.
    """
    runs, start, stop = Runs(), -1, -1
    count = total = passed = physical = 0
    is_lost = False
    for physical, size, tags_code in _UNIT.iter_unpack(units):
        if count:
            most, most_bytes = limits[:2] if physical >= recent else limits[2:]
            if count >= most or total + size > most_bytes:
                break
        passed += 1
        if size == _FILLER_SIZE or (tags is not None and tags_code not in tags):
            continue
        if physical < first or physical + size > end:
            is_lost = is_lost or not count
            continue
        if physical != stop or physical % file_bytes == 0:
            if stop > start:
                runs.append((start, stop))
            start = physical
        stop = physical + size
        count, total = count + 1, total + size
    if stop > start:
        runs.append((start, stop))
    return runs, count, total, passed, physical, is_lost
