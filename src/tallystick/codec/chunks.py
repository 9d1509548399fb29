"""Chunks of an entry log: frames that one checksum covers (``bookkeeper.bookie.entry_log``)."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from tallystick.codec.checksum import crc32c
from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview


@with_twin
def cut_chunks(
    frames: Buffer, starts: array[int], chunk_bytes: int, size: int, crc: int
) -> tuple[array[int], array[int], int]:
    """Cut frames that begin at ``starts`` into chunks, each of which ends with the first frame that makes it
    ``chunk_bytes`` long, and goes on from one of ``size`` bytes with this ``crc`` at first.

    Returns where each chunk ends, the CRC32C of each, and that of what is behind the last of them."""
    view, position, end = memoryview(frames), 0, len(frames)
    ends, checksums = array("Q"), array("Q")
    while position < end:
        at = bisect_left(starts, position + chunk_bytes - size)
        stop = starts[at] if at < len(starts) else end
        crc, size = crc32c(view[position:stop], crc), size + stop - position
        position = stop
        if size >= chunk_bytes:
            ends.append(stop)
            checksums.append(crc)
            crc = size = 0
    return ends, checksums, crc


@with_twin
def count_good_chunks(data: Buffer, bounds: array[int], checksums: array[int]) -> int:
    """Count the chunks from the first one on that are whole and match their checksums. ``data`` begins at the first of
    the bounds, which ascend, and chunk i ends at bound i + 1."""
    view, first = memoryview(data), bounds[0]
    for at, checksum in enumerate(checksums):
        start, stop = bounds[at] - first, bounds[at + 1] - first
        if stop > len(view) or crc32c(view[start:stop]) != checksum:
            return at
    return len(checksums)
