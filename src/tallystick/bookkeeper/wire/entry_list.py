"""Which entries of a ledger a bookie has, in the response to GET_LIST_OF_ENTRIES_OF_LEDGER.

It is the original's ``AvailabilityOfEntriesOfLedger``. A *sequence* is a run of entry ids without a gap; sequences of
one size that begin at equal distances are a group::

    version 4 (0) | number of groups 4 | zeros 56
    for each group: first sequence's start 8 | last sequence's start 8 | sequence size 4 | period 4 (0: one sequence)

So a stripe of a long ledger is one group. Numbers are big-endian, groups ascend.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tallystick.bookkeeper.wire.values import MAX_ID, EntryId
from tallystick.codec.frames import Buffer
from tallystick.errors import LocalProtocolError, RemoteProtocolError

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_MAX_INT = (1 << 31) - 1


class Group(NamedTuple):
    """Sequences of ``size`` ids each, from the one that starts at ``first`` to that at ``last``, ``period`` apart."""

    first: EntryId
    last: EntryId
    size: int
    period: int

    @property
    def sequences(self) -> int:
        """The number of sequences."""
        return 1 + ((self.last - self.first) // self.period if self.period else 0)


@dataclass(frozen=True)
class EntryList:
    """The entries that a bookie has. A group may stand for any number of them: iterate over ``runs`` with a bound."""

    groups: Sequence[Group] = ()

    @classmethod
    def decode(cls, data: Buffer) -> EntryList:
        """Decode a list. Raises RemoteProtocolError for one that contradicts itself."""
        if len(data) < _HEADER.size:
            raise RemoteProtocolError("a list of entries is shorter than its header", bytes=len(data))
        version, count = _HEADER.unpack_from(data)
        if version != 0:
            raise RemoteProtocolError("a list of entries has an unknown version", version=version)
        if len(data) != _HEADER.size + count * _GROUP.size:
            raise RemoteProtocolError("a list of entries has another length than it says", groups=count)
        groups = [Group(*row) for row in _GROUP.iter_unpack(memoryview(data)[_HEADER.size :])]
        end = -1
        for group in groups:
            if not _is_sound(group) or group.first <= end:
                raise RemoteProtocolError("a group of a list of entries contradicts itself", first=group.first)
            end = group.last + group.size - 1
        return cls(groups)

    @property
    def count(self) -> int:
        """The number of entries."""
        return sum(group.sequences * group.size for group in self.groups)

    def runs(self) -> Iterator[tuple[EntryId, EntryId]]:
        """Yield the runs of entries (first, last), ascending; those that touch each other as one."""
        pending: tuple[EntryId, EntryId] | None = None
        for group in self.groups:
            for first in range(group.first, group.last + 1, group.period or 1):
                last = first + group.size - 1
                if pending is not None and pending[1] + 1 == first:
                    pending = pending[0], last
                    continue
                if pending is not None:
                    yield pending
                pending = first, last
        if pending is not None:
            yield pending

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, int):
            return False
        for group in self.groups:
            if group.first <= entry < group.last + group.size:
                return (entry - group.first) % (group.period or group.size) < group.size
        return False


def encode_runs(runs: Iterable[tuple[EntryId, EntryId]], *, max_bytes: int = sys.maxsize) -> bytes:
    """Encode the list of ascending runs (first, last) that do not touch each other.

    Raises LocalProtocolError for one that takes more than ``max_bytes``, as soon as it does. What is done with each
    group is forgotten: to free 200,000 of them at once stops all other threads for 30 ms.
    """
    data, group = bytearray(_HEADER.size), None
    for run_first, last in runs:
        first = run_first
        while first <= last:
            size = min(last - first + 1, _MAX_INT)
            longer = None if group is None else _with(group, first, size)
            if group is not None and longer is None:
                data += _GROUP.pack(*group)
            group = longer or Group(first, first, size, 0)
            first += size
        if len(data) + _GROUP.size > max_bytes:
            raise LocalProtocolError("a list of entries is longer than its response may be", bytes=max_bytes)
    if group is not None:
        data += _GROUP.pack(*group)
    _HEADER.pack_into(data, 0, 0, (len(data) - _HEADER.size) // _GROUP.size)
    return bytes(data)


def _with(group: Group, first: EntryId, size: int) -> Group | None:
    """Return a group with one more sequence behind its others, None if that does not go on as they do."""
    period = first - group.last
    if size == group.size and period <= _MAX_INT and group.period in (0, period):
        return Group(group.first, first, size, period)
    return None


def _is_sound(group: Group) -> bool:
    first, last, size, period = group
    if not (0 <= first <= last and size > 0 and last + size - 1 <= MAX_ID):
        return False
    if first == last:
        return period >= 0
    return period >= size and (last - first) % period == 0
