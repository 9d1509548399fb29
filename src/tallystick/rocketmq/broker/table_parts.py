"""A master's tables as they are read, a part of their text a step, so that others have turns in between.

Any process may be named as master by a name server and send any text: one that is not strict JSON, but for bare numbers
as keys, is refused where it is long, since reading it takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.offset_pages import OffsetPagePart
from tallystick.rocketmq.broker.resets import MAX_NAMES, ResetTable
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import GroupTablePart, OffsetTablePart, TopicTablePart
from tallystick.rocketmq.wire.split import split
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, Int32, Int64, TopicConfig

PART_BYTES = 64 * 1024

Text = bytes | bytearray | memoryview
AnyPart = TypeVar("AnyPart")


class ConfigsRead:
    """The topics or groups of one page, as far as they are read."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicConfig] = {}
        self.groups: dict[str, GroupConfig] = {}
        self.forbidden: dict[str, dict[str, Int32]] = {}
        self._version: DataVersion | None = None
        self._is_table = False

    def reading(self, text: Text, kind: type[TopicTablePart] | type[GroupTablePart]) -> Iterator[None]:
        """Read a text in steps. Raises RemoteProtocolError."""
        for part in _parts(text, kind, depth=2):
            self._version = part.version or self._version
            if isinstance(part, TopicTablePart):
                self._is_table |= part.topics is not None
                self.topics.update(part.topics or {})
            else:
                self._is_table |= part.groups is not None
                self.groups.update(part.groups or {})
                self.forbidden.update(part.forbidden)
            yield

    @property
    def tables(self) -> tuple[dict[str, Any], ...]:
        """All its tables."""
        return self.topics, self.groups, self.forbidden

    @property
    def version(self) -> DataVersion:
        """Raises RemoteProtocolError if the text had none, or no table."""
        if self._version is None or not self._is_table:
            raise RemoteProtocolError("a table of the master has no version, or no entries")
        return self._version


class OffsetsRead:
    """The offsets of all pages, as far as they are read. ``most``: offsets, and keys without any, together."""

    def __init__(self, most: int) -> None:
        self.version: DataVersion | None = None
        self.offsets: dict[str, dict[Int32, Int64]] | None = None
        self.pull_offsets: dict[str, dict[Int32, Int64]] = {}
        self.resets = ResetTable()
        self._most, self._count = most, 0

    def reading(self, text: Text, kind: type[OffsetPagePart] | type[OffsetTablePart]) -> Iterator[None]:
        """Read a text in steps. Raises RemoteProtocolError."""
        for part in _parts(text, kind, depth=3):
            self.version = part.version or self.version
            if part.offsets is not None:
                self.offsets = {} if self.offsets is None else self.offsets
                self._count += _add(self.offsets, part.offsets)
            self._count += _add(self.pull_offsets, part.pull_offsets or {})
            if isinstance(part, OffsetPagePart):
                self._take_resets(part.resets)
            check_count(self._count, self._most, "consumer offsets: maxOffsets here allows")
            yield

    def _take_resets(self, some: ResetTable) -> None:
        self._count += _add(self.resets.counts, some.counts) + _add(self.resets.pending, some.pending)
        self.resets.topics.update(some.topics)
        self.resets.groups.update(some.groups)
        names = len(self.resets.topics) + len(self.resets.groups)
        check_count(names, 2 * MAX_NAMES, "names of what was deleted: there may be")
        if some.floor > self.resets.floor:
            self.resets = msgspec.structs.replace(self.resets, floor=some.floor)


def check_count(count: int, most: int, what: str) -> None:
    """Raises RemoteProtocolError if a table has too many entries."""
    if count > most:
        raise RemoteProtocolError(f"the master has more {what} {most}", count=count)


def _parts(text: Text, kind: type[AnyPart], *, depth: int) -> Iterator[AnyPart]:
    for part in split(bytes(text), PART_BYTES, depth=depth):
        yield dialect.read_as(part, kind, bounded=False, max_values=dialect.MAX_LOOSE_SHORT)


def _add(table: dict[str, dict[Int32, Int64]], some: dict[str, dict[Int32, Int64]]) -> int:
    """Returns how many more there are, of queues or of keys without any."""
    count = 0
    for key, queues in some.items():
        mine = table.setdefault(key, queues)
        before = 0 if mine is queues else len(mine)
        if mine is not queues:
            mine.update(queues)
        count += len(mine) - before or 1
    return count
