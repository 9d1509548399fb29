"""How far delayed messages have been delivered, by delay level (``ScheduleMessageService``).

This broker delivers none. A slave keeps the table of its master, word for word, so that whoever becomes master after
it goes on where the old one was; a master keeps what it found in its folder.
"""

from __future__ import annotations

from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import DelayTable
from tallystick.rocketmq.wire.values import DataVersion
from tallystick.runtime.clock import Clock


class Delays:
    """A slave's copy of the delay offsets. ``dirty`` tells the saver that ``text`` differs from what it wrote last."""

    def __init__(self, clock: Clock, saved: DelayTable | None = None) -> None:
        self.table = saved if saved is not None else DelayTable(DataVersion(0, clock.wall_ms(), 0), {})
        self.text = dialect.write(self.table)
        self.dirty = False

    def take(self, text: bytes, table: DelayTable) -> None:
        """Take over the master's table: its text, and the values that were read from it."""
        self.dirty = self.dirty or text != self.text
        self.text, self.table = text, table
