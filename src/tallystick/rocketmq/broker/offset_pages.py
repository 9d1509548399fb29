"""The pages of the consumer offsets that a slave of ours copies (``pages.PagedTable``)."""

from __future__ import annotations

from itertools import islice

import msgspec
from msgspec import field

from tallystick.rocketmq.broker.offsets import Offsets
from tallystick.rocketmq.broker.pages import Page
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import DataVersion, Int32, Int64

OFFSETS = "consumerOffsets"
PAGE_OFFSETS = 8192  # a page ends with the group and topic that reaches so many
PAGE_KEYS = 1024
# The places of the first pull offset, and of the first reset without an offset: commits that come meanwhile move none.
_PULL_PLACES, _RESET_PLACES = 1 << 40, 1 << 41


class OffsetPage(msgspec.Struct, frozen=True):
    """A part of ``OffsetTable``."""

    version: DataVersion
    offsets: dict[str, dict[Int32, Int64]] = field(default_factory=dict)
    pull_offsets: dict[str, dict[Int32, Int64]] = field(default_factory=dict)
    resets: ResetTable = ResetTable()  # of these offsets


class OffsetPagePart(msgspec.Struct, frozen=True):
    """A part of an ``OffsetPage``: a member that is None is in another part."""

    version: DataVersion | None = None
    offsets: dict[str, dict[Int32, Int64]] | None = None
    pull_offsets: dict[str, dict[Int32, Int64]] | None = None
    resets: ResetTable = ResetTable()


class OffsetPages:
    """First the committed offsets with their resets, then the pull offsets, at last the resets whose offset a crash
    took: each by group and topic, in the order in which they came."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    @property
    def snapshot(self) -> int:
        return self._offsets.replacements

    def page(self, start: int) -> Page:
        if start >= _RESET_PLACES:
            return self._resets_page(start)
        offsets, first = self._offsets, 0 if start < _PULL_PLACES else _PULL_PLACES
        table = offsets.pull_offsets if first else offsets.committed_offsets
        entries: dict[str, dict[int, int]] = {}
        index, count = max(0, start - first - offsets.removals), 0
        for key, queues in islice(table.items(), index, index + PAGE_KEYS):
            entries[key] = queues
            count += len(queues)
            if count >= PAGE_OFFSETS:
                break
        index += len(entries)
        at: int | None = first + index + offsets.removals
        if index >= len(table):
            at = _RESET_PLACES if offsets.keys_of_resets else None
            at = at if first or not offsets.pull_offsets else _PULL_PLACES
        if first:
            page = OffsetPage(offsets.version, pull_offsets=entries)
        else:
            page = OffsetPage(offsets.version, entries, resets=offsets.resets.of(entries, with_names=not start))
        return Page(dialect.write_strict(page), at)

    def _resets_page(self, start: int) -> Page:
        offsets, keys, count = self._offsets, list[str](), 0
        counts = offsets.resets.table().counts
        index = max(0, start - _RESET_PLACES - offsets.removals)
        for key in islice(offsets.keys_of_resets, index, index + PAGE_KEYS):
            keys.append(key)
            count += len(counts.get(key, ()))
            if count >= PAGE_OFFSETS:
                break
        index += len(keys)
        at = None if index >= len(offsets.keys_of_resets) else _RESET_PLACES + index + offsets.removals
        page = OffsetPage(offsets.version, resets=offsets.resets.of(keys, with_names=False))
        return Page(dialect.write_strict(page), at)
