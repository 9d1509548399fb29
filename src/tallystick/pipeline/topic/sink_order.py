"""The rows of a task in an order that hangs on nothing but the rows: what comes of a shuffle comes in any.

Up to a bound they are sorted in memory. Beyond, each part that is sorted goes to a file, and all are merged.
"""

from __future__ import annotations

import heapq
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

MEMORY_BYTES = 64 * 1024 * 1024
_ROW_COST_BYTES = 50  # of an object and its place in a list
_SIZE = struct.Struct(">I")
_BUFFER_BYTES = 1024 * 1024


def sorted_rows(rows: Iterable[bytes], memory_bytes: int = MEMORY_BYTES) -> Iterator[bytes]:
    """Yields the rows, sorted. Close it, or exhaust it: it may have files."""
    files: list[IO[bytes]] = []
    part: list[bytes] = []
    size = 0
    try:
        for row in rows:
            part.append(row)
            size += len(row) + _ROW_COST_BYTES
            if size > memory_bytes:
                part.sort()
                files.append(_written(part))
                part, size = [], 0
        part.sort()
        yield from heapq.merge(*map(_read, files), part) if files else part
    finally:
        for file in files:
            file.close()


def _written(part: list[bytes]) -> IO[bytes]:
    """Returns a file with the rows, which is gone when it is closed."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER_BYTES)  # noqa: SIM115  # it outlives this call
    for row in part:
        file.write(_SIZE.pack(len(row)))
        file.write(row)
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while head := file.read(_SIZE.size):
        yield file.read(*_SIZE.unpack(head))
