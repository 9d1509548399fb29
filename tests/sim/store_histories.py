"""Random schedules of three message stores whose log does not go on as it was: roles move, and its end is lost.

Beside what ``store_schedules`` has: a master loses power with what it had not synced; a slave becomes master, and the
other slave follows it; a slave is a master for a moment. So a slave knows deletions, and ends of queues, of a log that
never comes. Judges: as there, and a slave's queue ends at its last message.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.store_schedules import Node, Schedule
from tallystick.errors import UsageError


class Histories(Schedule):
    """``run`` raises AssertionError for a broken promise."""

    def __init__(self, seed: int, *, runs_on: bool) -> None:
        super().__init__(seed, runs_on=runs_on)
        self.other = self._new_slave()
        self.process = self.cuts = 0
        self._told_by: dict[Node, str] = {}

    def _new_slave(self) -> Node:
        slave = Node(self.rng, slave=True)
        slave.deletions = self.master.deletions
        return slave

    def steps(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().steps(), (self.swap, 3), (self.lose_end, 1), (self.give_back, 1)]

    def swap(self) -> None:
        self.slave, self.other = self.other, self.slave

    def copy(self) -> None:
        self.follow()
        super().copy()

    def tell(self) -> None:
        self.follow()
        super().tell()

    def follow(self) -> None:
        slave, process = self.slave, f"process {self.process}"
        if self._told_by.get(slave) != process or not slave.store.reput_offset:
            self._cut(slave, slave.store.reput_offset)
        self._told_by[slave] = process
        slave.store.replicated.follow(process)

    def _cut(self, node: Node, end: int) -> None:
        self.cuts += any(offset > end for offset in node.deleted.values())
        node.deleted = {topic: min(offset, end) for topic, offset in node.deleted.items()}

    def promote(self) -> None:
        promotions = self.promotions
        super().promote()
        if self.promotions > promotions:
            self._next_log()
            self.slave = self.other
            self.other = self._new_slave()
            self._keep_same_logs()

    def lose_end(self) -> None:
        """The master and, it may be, its slave lose power. What a master that told of queue ends is lost with it."""
        master = self.master
        for node in (master, *([self.slave] if self.patience.random() < 0.5 else [])):
            node.unlinks.clear()
            node.disk.power_loss()
            node.again()
        end = master.store.end
        self._cut(master, end)
        master.deletions, master.told = {(topic, min(offset, end)) for topic, offset in master.deletions}, {}
        self._next_log()
        self._keep_same_logs()
        master.judge()

    def _next_log(self) -> None:
        self.process += 1

    def _keep_same_logs(self) -> None:
        """Whose log the master's does not continue, is refused by it, and begins anew."""
        log = self.master.log()
        for name in ("slave", "other"):
            slave = getattr(self, name)
            start = slave.store.first - self.master.store.first
            if slave.store.end and not log[start:].startswith(slave.log()):
                slave = self._new_slave()
                setattr(self, name, slave)
            slave.deletions = self.master.deletions
            slave.told_at = min(slave.told_at, self.master.store.end)

    def give_back(self) -> None:
        """A slave is a master for a moment."""
        slave = self.slave
        try:
            slave.store.promote()
        except UsageError:
            return
        slave.store.take_role(slave=False)
        slave.store.take_role(slave=True)
        self._told_by[slave] = ""
        self._cut(slave, slave.store.end)
        slave.judge()

    def look(self) -> None:
        super().look()
        self.other.settle()
        self.other.judge()
