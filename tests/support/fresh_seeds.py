"""The seeds of a test that looks at fresh schedules."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

MORE = 300


def fresh_seeds(first: int, count: int, met: Collection[str], wanted: Collection[str]) -> Iterator[int]:
    """Yield so many seeds, and some more as long as not all that is wanted was met: one of a hundred schedules may have
    it, and a hundred have none at times."""
    yield from range(first, first + count)
    yield from itertools.takewhile(lambda _: not set(wanted) <= set(met), range(first + count, first + count + MORE))
