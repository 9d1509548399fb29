"""Entries of a ledger that were given up as lost, in its custom metadata: readers are told of them, and ask nobody.

::

    tallystick.lost: "3-4 9-9 100-998:1/3"      runs of entries, first and last; the last group: 100, 103, 106 … 998

What two lost bookies alone had of a striped ledger is every n-th run: a group stands for all of them. Groups ascend,
and one ends before the next begins. An original client does not know of it: it is told what its bookies say.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from tallystick.bookkeeper.wire.values import EntryId, LedgerMetadata
from tallystick.errors import MetadataError, UsageError

LOST_KEY = "tallystick.lost"  # of custom metadata
MOST_GROUPS = 1000
_GROUP = re.compile(r"(\d{1,19})-(\d{1,19})(?::(\d{1,19})/(\d{1,19}))?", re.ASCII)

Run = tuple[EntryId, EntryId]


class LostGroup(NamedTuple):
    """Runs of ``size`` entries each, ``period`` apart: from the one that begins at ``first`` to the one that ends at
    ``last``."""

    first: EntryId
    last: EntryId
    size: int
    period: int

    def next_run(self, entry: EntryId) -> Run | None:
        """Return the first run that ends at this entry or later, None if there is none."""
        if entry > self.last:
            return None
        first = self.first + max(0, entry - self.first) // self.period * self.period
        if entry >= first + self.size:
            first += self.period
        return first, first + self.size - 1

    def __str__(self) -> str:
        text = f"{self.first}-{self.last}"
        return text if self.last - self.first < self.size else f"{text}:{self.size}/{self.period}"


Lost = tuple[LostGroup, ...]


def lost_of(custom: Mapping[str, bytes]) -> Lost:
    """Return what was given up of a ledger with this custom metadata. Raises MetadataError if nobody can read that."""
    text = custom.get(LOST_KEY)
    if not text:
        return ()
    groups = list[LostGroup]()
    for word in text.decode(errors="replace").split(" "):
        match = _GROUP.fullmatch(word)
        if match is None:
            raise MetadataError("what was given up of a ledger cannot be read", text=word[:60])
        first, last = int(match[1]), int(match[2])
        size = int(match[3]) if match[3] else last - first + 1
        period = int(match[4]) if match[4] else size
        if not (0 < size <= period and first <= last) or (groups and groups[-1].last >= first):
            raise MetadataError("what was given up of a ledger contradicts itself", text=word[:60])
        groups.append(LostGroup(first, last, size, period))
    return tuple(groups)


def encode_lost(runs: Sequence[Run]) -> bytes:
    """Return the text of ascending runs that do not meet. Raises UsageError for more than a node can take."""
    groups = list[LostGroup]()
    for first, last in runs:
        size = last - first + 1
        if groups and groups[-1].size == size:
            before = groups[-1]
            is_one = before.last - before.first < size
            distance = first - (before.last - size + 1)
            if is_one or distance == before.period:
                groups[-1] = LostGroup(before.first, last, size, distance)
                continue
        groups.append(LostGroup(first, last, size, size))
    if len(groups) > MOST_GROUPS:
        raise UsageError("so many runs of entries are lost that the metadata cannot say which", groups=len(groups))
    return " ".join(map(str, groups)).encode()


_last = attrgetter("last")


def next_lost(lost: Lost, entry: EntryId) -> Run | None:
    """Return the first lost run that ends at this entry or later, None if there is none."""
    at = bisect_left(lost, entry, key=_last)
    return lost[at].next_run(entry) if at < len(lost) else None


def with_lost(metadata: LedgerMetadata, runs: Sequence[Run]) -> LedgerMetadata:
    """Return the metadata with more runs given up. Raises UsageError for more than a node can take, and for metadata
    of format 1, which can say nothing of it."""
    if metadata.format_version < 2:
        raise UsageError("metadata of format 1 cannot say that entries are lost")
    entries = [*runs_of_lost(lost_of(metadata.custom)), *runs]
    text = encode_lost(joined(entries))
    return replace(metadata, custom=MappingProxyType({**metadata.custom, LOST_KEY: text}))


def joined(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return runs in order, those that meet as one."""
    disjoint = list[Run]()
    for first, last in sorted(runs):
        if disjoint and first <= disjoint[-1][1] + 1:
            disjoint[-1] = (disjoint[-1][0], max(last, disjoint[-1][1]))
        else:
            disjoint.append((first, last))
    return tuple(disjoint)


def runs_of_lost(lost: Lost) -> Iterator[Run]:
    """Yield all lost runs, ascending: a few groups stand for millions."""
    for group in lost:
        for first in range(group.first, group.last + 1, group.period):
            yield first, first + group.size - 1


def without_lost(entries: Sequence[EntryId], lost: Lost) -> Sequence[EntryId]:
    """Return those of the entries that are not lost."""
    return [entry for entry in entries if not is_lost(lost, entry)] if lost else entries


def is_lost(lost: Lost, entry: EntryId) -> bool:
    """Return whether an entry was given up."""
    run = next_lost(lost, entry)
    return run is not None and run[0] <= entry
