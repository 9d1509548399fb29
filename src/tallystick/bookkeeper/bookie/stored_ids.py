"""The ids of all entries that a bookie stores of one ledger, for who compares them with those of other bookies.

A moment of the loop makes a snapshot of what is in memory, and a thread finds the runs in that and in the pages: with
ten million entries that takes seconds. An entry that is added meanwhile may or may not be among them. None is lost that
a checkpoint moves meanwhile: the ids in memory are in the snapshot, pages lose nothing, and what moves within one is
there before it leaves (``index.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, groupby

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.memtable import Rows, Run
from tallystick.bookkeeper.bookie.steps import sorted_in_parts
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.codec.pages import PAGE_BITS

_STORED = re.compile(rb"\x01+")


@dataclass(frozen=True)
class StoredIds:
    """A snapshot, made by ``of``, beside the pages, which change. ``late`` ids are in memory, in no order."""

    pages: index.Pages = field(repr=False)
    in_memory: Sequence[Sequence[Run]] = field(repr=False)  # of each table, ascending
    late: Sequence[Sequence[EntryId]] = field(repr=False)  # of each table

    @classmethod
    def of(cls, pages: index.Pages, tables: Iterable[Rows]) -> StoredIds:
        """Make the snapshot of a ledger's pages and of its rows in memory."""
        rows = list(tables)
        return cls(pages, [each.runs.copy() for each in rows], [[*each.late] for each in rows])

    def runs(self) -> Iterator[range]:
        """Find the runs of consecutive ids, ascending. A thread may do this."""
        streams = [self._runs_of_pages(), *(_runs(sorted_in_parts(table)) for table in self.late)]
        streams += [_runs(chain.from_iterable(run.entries for run in table)) for table in self.in_memory]
        return _joined(merge(*streams, key=_first))

    def _runs_of_pages(self) -> Iterator[range]:
        # Each copy is made in one go, which no other thread interrupts, and in this order: see below. Some come twice.
        for number, _ in groupby(sorted_in_parts([*self.pages.sparse, *self.pages])):
            base = number << PAGE_BITS
            # In this order: what leaves the sparse rest is in the page before.
            rest, page = self.pages.sparse.get(number), self.pages.get(number)
            if page is not None:
                for match in _STORED.finditer(bytes(map(bool, page[:]))):
                    yield range(base + match.start(), base + match.end())
            if rest is not None:
                yield from _runs(base + slot for slot in rest[: len(rest) // 2])


def _first(run: range) -> EntryId:
    return run.start


def _runs(ids: Iterable[EntryId]) -> Iterator[range]:
    return _joined(range(each, each + 1) for each in ids)


def _joined(runs: Iterable[range]) -> Iterator[range]:
    """Join ascending runs that touch or overlap."""
    start = stop = 0
    for run in runs:
        if run.start > stop:
            if stop > start:
                yield range(start, stop)
            start = run.start
        stop = max(stop, run.stop)
    if stop > start:
        yield range(start, stop)
