"""Work of the loop on very many ledgers: it stops after each step, so that others have turns in between.

A thread is no cure: it holds the interpreter as long. What is stored may change from step to step, so a decision reads
each ledger once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, islice, pairwise

from tallystick.codec.steps import Steps

STEP_LEDGERS = 1000  # so many are looked through, or deleted, at once: a millisecond or two
SORTED_AT_ONCE = 10_000  # ids: a few milliseconds, in which no other thread runs either


def ascending(ids: Sequence[int]) -> Steps[array[int]]:
    """Sort ids."""
    parts: list[array[int]] = []
    for start in range(0, len(ids), SORTED_AT_ONCE):
        if parts:
            yield
        parts.append(array("q", sorted(ids[start : start + SORTED_AT_ONCE])))
    result = array("q")
    if all(before[-1] <= after[0] for before, after in pairwise(parts)):
        for part in parts:
            result.extend(part)
        return result
    merged = merge(*parts)
    while part := array("q", islice(merged, STEP_LEDGERS)):
        result.extend(part)
        yield
    return result


def sorted_in_parts(ids: Sequence[int]) -> Iterator[int]:
    """Sort ids on a thread: in parts, between which the loop has its turns."""
    # No lists: with very many ids the collector of garbage would look through them for long.
    starts = range(0, len(ids), SORTED_AT_ONCE)
    parts = [array("q", sorted(ids[start : start + SORTED_AT_ONCE])) for start in starts]
    if all(before[-1] <= after[0] for before, after in pairwise(parts)):
        return chain.from_iterable(parts)
    return merge(*parts)
