"""Cutting what a query reads into partitions: few and fat ones. Pure.

::

    stretches   7: 0 ── 49 | 7: 50 ── 99 | 8: 0 ── 9 | 9: 0 ── 4       numbered items, some bytes each
    partitions  [7: 0-49, 7: 50-63] [7: 64-99, 8: 0-9, 9: 0-4]         cut where the bytes fill up

A Python partition costs some 15 to 48 ms of CPU before its first row, so short stretches share one, and only bytes (or
the caller's wish for more) make partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Stretch(NamedTuple):
    """Items ``first`` to ``last``, both inclusive, of about ``item_bytes`` each: an estimate, for the cuts alone."""

    first: int
    last: int
    item_bytes: int

    @property
    def size(self) -> int:
        """Of all items, in bytes."""
        return (self.last - self.first + 1) * self.item_bytes


@dataclass(frozen=True)
class Limits:
    """How partitions are cut. ``min_partitions`` is a wish: an item is never divided."""

    max_partition_bytes: int = 128 * 1024 * 1024
    min_partitions: int = 1
    max_partition_items: int | None = None


def cut(stretches: Sequence[Stretch], limits: Limits) -> list[list[tuple[int, Stretch]]]:
    """Returns the pieces of each partition, each with its stretch's number.

    Each item comes once and in order; without items there is no partition.
    """
    sizes = [stretch.size for stretch in stretches]
    total = sum(sizes)
    partition_count = max(limits.min_partitions, -(-total // limits.max_partition_bytes), 1)
    share = max(1, -(-total // partition_count))
    partitions: dict[int, list[tuple[int, Stretch]]] = {}
    start = 0
    for number, (stretch, size) in enumerate(zip(stretches, sizes, strict=True)):
        index, end = start // share, start + size
        if start < end and (end - stretch.item_bytes) // share == index:  # whole, as most of very many are
            partitions.setdefault(index, []).append((number, stretch))
        else:
            for index, piece in _pieces(stretch, start, share):
                partitions.setdefault(index, []).append((number, piece))
        start = end
    if limits.max_partition_items is None:
        return list(partitions.values())
    return [part for pieces in partitions.values() for part in _parts(pieces, limits.max_partition_items)]


def _parts(pieces: Sequence[tuple[int, Stretch]], max_items: int) -> Iterator[list[tuple[int, Stretch]]]:
    """The pieces of one partition as partitions of so many items."""
    part: list[tuple[int, Stretch]] = []
    room = max_items
    for number, piece in pieces:
        first = piece.first
        while first <= piece.last:
            last = min(piece.last, first + room - 1)
            part.append((number, piece._replace(first=first, last=last)))
            room -= last - first + 1
            first = last + 1
            if not room:
                yield part
                part, room = [], max_items
    if part:
        yield part


def _pieces(stretch: Stretch, start: int, share: int) -> Iterator[tuple[int, Stretch]]:
    """Pieces of a stretch that begins at byte ``start`` of the query; an item belongs where its first byte falls."""
    first, item_bytes = stretch.first, stretch.item_bytes
    while first <= stretch.last:
        index = (start + (first - stretch.first) * item_bytes) // share
        end = stretch.first + -(-((index + 1) * share - start) // item_bytes)  # the first item of the next partition
        last = min(end - 1, stretch.last)
        whole = first == stretch.first and last == stretch.last
        yield index, stretch if whole else Stretch(first, last, item_bytes)
        first = last + 1
