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
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tallystick.bookkeeper.wire.values import MAX_ID, NO_ENTRY, EntryId
from tallystick.codec.frames import Buffer
from tallystick.errors import LocalProtocolError, RemoteProtocolError

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_MAX_INT = (1 << 31) - 1
_CHECKED_AT_ONCE = 2000  # groups: some milliseconds


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

    def runs(self) -> Iterator[tuple[EntryId, EntryId]]:
        """Yield its runs of entries (first, last), ascending: one of all its sequences if they touch each other.

        Those may be 2^62: a peer's list of a few bytes would hold the loop for ever.
        """
        if self.period <= self.size:
            yield self.first, self.last + self.size - 1
            return
        for first in range(self.first, self.last + 1, self.period):
            yield first, first + self.size - 1


class EntryList:
    """The entries that a bookie has. A group may stand for any number of them: iterate over ``runs`` with a bound.

    It is kept as it came: 200,000 groups are no objects. ``count`` is the number of entries, once ``checks`` are done.
    """

    def __init__(self, data: Buffer) -> None:
        """Take a list, which must pass ``checks`` before it is used; ``decode`` does both.

        Raises RemoteProtocolError for one of another version or length than it says.
        """
        self._data, self.count = bytes(data), 0
        if len(data) < _HEADER.size:
            raise RemoteProtocolError("a list of entries is shorter than its header", bytes=len(data))
        version, self._count = _HEADER.unpack_from(data)
        if version != 0:
            raise RemoteProtocolError("a list of entries has an unknown version", version=version)
        if len(data) != _HEADER.size + self._count * _GROUP.size:
            raise RemoteProtocolError("a list of entries has another length than it says", groups=self._count)

    @classmethod
    def decode(cls, data: Buffer) -> EntryList:
        """Decode a list. Raises RemoteProtocolError for one that contradicts itself."""
        listed = cls(data)
        for _ in listed.checks():
            pass
        return listed

    def checks(self) -> Iterator[None]:
        """Check the list, some milliseconds of it a step. Raises RemoteProtocolError if it contradicts itself."""
        end, count = -1, 0
        for number, group in enumerate(self.groups):
            if number and not number % _CHECKED_AT_ONCE:
                yield
            if not _is_sound(group) or group.first <= end:
                raise RemoteProtocolError("a group of a list of entries contradicts itself", first=group.first)
            end = group.last + group.size - 1
            count += group.sequences * group.size
        self.count = count

    @property
    def groups(self) -> Iterator[Group]:
        return map(Group._make, _GROUP.iter_unpack(memoryview(self._data)[_HEADER.size :]))

    @property
    def last(self) -> EntryId:
        """The last entry, NO_ENTRY of none."""
        if not self._count:
            return NO_ENTRY
        group = self._group(self._count - 1)
        return group.last + group.size - 1

    def runs(self) -> Iterator[tuple[EntryId, EntryId]]:
        """Yield the runs of entries (first, last), ascending; those that touch each other as one."""
        pending: tuple[EntryId, EntryId] | None = None
        for group in self.groups:
            for first, last in group.runs():
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
        at = bisect_right(range(self._count), entry, key=lambda number: self._group(number).first) - 1
        if at < 0:
            return False
        group = self._group(at)
        return entry < group.last + group.size and (entry - group.first) % (group.period or group.size) < group.size

    def _group(self, number: int) -> Group:
        return Group(*_GROUP.unpack_from(self._data, _HEADER.size + number * _GROUP.size))


def encode_runs(runs: Iterable[tuple[EntryId, EntryId]], *, max_bytes: int = sys.maxsize) -> bytes:
    """Encode the list of ascending runs (first, last) that do not touch each other.

    Raises LocalProtocolError for one that takes more than ``max_bytes``, as soon as it does. What is done with each
    group is forgotten: to free 200,000 of them at once stops all other threads for 30 ms.
    """
    data, group = bytearray(_HEADER.size), None
    for first, last in runs:
        for added in _groups_of(first, last):
            longer = None if group is None else _with(group, added)
            if group is not None and longer is None:
                data += _GROUP.pack(*group)
            group = longer or added
        if len(data) + _GROUP.size > max_bytes:
            raise LocalProtocolError("a list of entries is longer than its response may be", bytes=max_bytes)
    if group is not None:
        data += _GROUP.pack(*group)
    _HEADER.pack_into(data, 0, 0, (len(data) - _HEADER.size) // _GROUP.size)
    return bytes(data)


def _groups_of(first: EntryId, last: EntryId) -> Iterator[Group]:
    """Yield a run as groups: sequences that are as long as may be, which touch each other, then what is left of it."""
    whole, rest = divmod(last - first + 1, _MAX_INT)
    if whole:
        yield Group(first, first + (whole - 1) * _MAX_INT, _MAX_INT, _MAX_INT if whole > 1 else 0)
    if rest:
        yield Group(last - rest + 1, last - rest + 1, rest, 0)


def _with(group: Group, added: Group) -> Group | None:
    """Return a group with one more sequence behind its others, None if that does not go on as they do."""
    period = added.first - group.last
    if added.first == added.last and added.size == group.size and period <= _MAX_INT and group.period in (0, period):
        return Group(group.first, added.first, group.size, period)
    return None


def _is_sound(group: Group) -> bool:
    first, last, size, period = group
    if not (0 <= first <= last and size > 0 and last + size - 1 <= MAX_ID):
        return False
    if first == last:
        return period >= 0
    return period >= size and (last - first) % period == 0
