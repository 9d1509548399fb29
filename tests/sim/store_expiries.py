"""Random schedules of a master's store and a slave's whose old messages expire, with crashes while they are deleted.

Judges, beside those of ``store_schedules``: a start after such a crash dispatches nothing again that was dispatched,
builds nothing again, and leaves no file behind that the deletion was to take.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.store_schedules import Node, Schedule
from support.message_stores import ROOT
from tallystick.rocketmq.store.queue_state import read_queue_state
from tallystick.runtime.disk import Disk
from tallystick.sim.disk import Crashed

AGE_MS = 100 * 3_600_000


class Expiries(Schedule):
    """``run`` raises AssertionError for a broken promise."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.expiries = self.interruptions = 0

    def steps(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().steps(), (self.expire, 4)]

    def expire(self) -> None:
        """A crash at any operation of the deletion, or at none."""
        for _ in range(6):
            self.send()
            self.copy()
        node = self.node()
        node.settle()
        while node.store.rebuilding:
            node.store.rebuild()
        node.settle()
        node.clock.ms = max(self.master.clock.ms, self.slave.clock.ms) + AGE_MS
        first, dispatched = node.store.first, node.store.reput_offset
        node.store.delete_expired()
        node.events.clear()
        self.crash_soon(node)
        try:
            node.store.maintain(node.clock.ms)
            node.disk.crash_at = node.disk.fault = None
        except Crashed:
            node.disk.fault = None
            node.crash()
            self.interruptions += read_queue_state(node.disk, ROOT).drop_from >= 0
            node.again()
            self.judge_start(node, dispatched)
        self.expiries += node.store.first > first
        node.judge()
        if node is self.master and 0 < self.slave.store.end < node.store.first:  # it begins anew, as a slave does
            self.slave = Node(self.rng, slave=True)
            self.slave.deletions = self.master.deletions

    def crash_soon(self, node: Node) -> None:
        """At any operation, or when the first file of the log goes, or soon after."""
        disk = node.disk
        if self.rng.random() < 0.4:
            disk.crash_at = disk.operations + self.rng.randrange(1, 400)
            return

        def aim(operation: str, path: str) -> None:
            if operation == "unlink" and "commitlog" in path and disk.crash_at is None:
                disk.crash_at = disk.operations + self.rng.randrange(20)

        disk.fault = aim

    def judge_start(self, node: Node, dispatched: int) -> None:
        again_from = [
            node.store.end - event.fields["dispatched_again"] for event in node.events if event.kind == "store opened"
        ]
        assert all(offset >= dispatched for offset in again_from), f"{again_from}: {dispatched} were dispatched"
        built = [event for event in node.events if event.kind == "queues built again"]
        assert not built, f"nothing was lost: {built}"
        parts = node.store._parts
        assert earlier(node.disk, f"{ROOT}/commitlog", parts.log.files.first) == []
        for queue in parts.queues:
            folder = f"{ROOT}/consumequeue/{queue.topic}/{queue.queue_id}"
            assert earlier(node.disk, folder, queue._files.first) == [], folder


def earlier(disk: Disk, folder: str, first: int) -> list[str]:
    """Returns the files before the first one."""
    return [name for name in disk.sizes(folder) if int(name) < first]
