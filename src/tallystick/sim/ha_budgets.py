"""What a life of a master and its slaves has of that for which it has a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tallystick.sim.budgets import TASKS, TURN, of_loop
from tallystick.sim.ha_hosts import HaHost, HaWorld
from tallystick.sim.virtual.loop import VirtualLoop

BUDGETS = {
    "open files of a node": 72,
    "calls that wait for a node's thread": 4,
    "sends that wait at a node": 24,
    "connections of a slave to its master": 1,
    "bytes that one end has not sent": 48 * 1024,
    TASKS: 100,
    TURN: 60,
}


def counts(world: HaWorld, loop: VirtualLoop, nodes: Sequence[HaHost]) -> list[tuple[str, int]]:
    """Returns the counts of now, by the names of the budgets."""
    totals = list(of_loop(loop))
    for node in nodes:
        totals.append(("open files of a node", len(node.disk.open_files)))
        totals.append(("sends that wait at a node", len(node.senders)))
        totals += [("calls that wait for a node's thread", worker.pending_count) for worker in node.workers]
    ends = world.fabric.ends()
    links = Counter(end.process for end in ends if end.here[0] != nodes[0].address)
    totals += [("connections of a slave to its master", count) for count in links.values()]
    totals += [("bytes that one end has not sent", end.get_write_buffer_size()) for end in ends]
    return totals
