"""A slave's offsets: its master's are taken, or looked at, without a stop."""

from __future__ import annotations

from tallystick.rocketmq.broker.offsets import OffsetCommit, Offsets
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.wire.bodies import OffsetTable


def take_over(offsets: Offsets, table: OffsetTable, resets: ResetTable | None = None) -> None:
    """By the master's."""
    merge = offsets.merge(table, resets)
    list(merge.steps())
    list(offsets.become(merge))


def lacking(offsets: Offsets, table: OffsetTable, resets: ResetTable | None = None) -> list[OffsetCommit]:
    """By the master."""
    return [commit for commit in offsets.lacking(table, resets) if commit is not None]
