"""What a schedule may not pass: handles, connections, bytes held, items queued. Looked at four times a second.

Each bound is what the code allows, or over twice the most that hundreds of schedules came to: a leak grows past it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from tallystick.sim.cluster_hosts import BookieHost, ClusterWorld
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.network import FIRST_PORT

EVERY_S = 0.25
BUDGETS = {
    "open files of a bookie": 32,
    "calls that wait for a bookie's thread": 4,
    "bytes in a bookie's memory": 512 * 1024,
    "bytes that a bookie's journal has not written": 1024 * 1024,
    "bytes that a bookie holds for its peers": 128 * 1024,
    "connections of a client to a bookie": 1,
    "bytes that one end has not sent": 512 * 1024,
    "tasks": 600,
    "callbacks of one turn of the loop": 500,
}


class Budgets:
    """``watch`` is an endless task of no process; the judge hears of the first budget that is passed."""

    def __init__(self, world: ClusterWorld, loop: VirtualLoop, bookies: Sequence[BookieHost]) -> None:
        self._world, self._loop, self._bookies = world, loop, bookies

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self.look()

    def look(self) -> None:
        """Raises Violation."""
        for what, count in self._counts():
            if count > BUDGETS[what]:
                self._world.judge.fail("budget", f"{what}: {count:,}, and {BUDGETS[what]:,} are allowed")

    def _counts(self) -> list[tuple[str, int]]:
        found = [("tasks", self._loop.tasks), ("callbacks of one turn of the loop", self._loop.longest_turn)]
        for host in self._bookies:
            found.append(("open files of a bookie", len(host.disk.open_files)))
            found += [("calls that wait for a bookie's thread", worker.waiting) for worker in host.workers]
            if host.bookie is not None:
                counts = host.bookie.counts
                found += [
                    ("bytes in a bookie's memory", host.bookie.storage.stats().memtable_bytes),
                    ("bytes that a bookie's journal has not written", host.bookie.committer.staged_bytes),
                    ("bytes that a bookie holds for its peers", counts.unsent_bytes + counts.unfinished_bytes),
                ]
        ends = self._world.fabric.ends()
        links = Counter((end.process, end.peer.process) for end in ends if end.here[1] > FIRST_PORT)
        found += [("connections of a client to a bookie", count) for count in links.values()]
        found += [("bytes that one end has not sent", end.get_write_buffer_size()) for end in ends]
        return found
