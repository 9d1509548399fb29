"""What a life of bookies and their clients has of that for which it has a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tallystick.sim.budgets import TASKS, TURN, of_loop
from tallystick.sim.cluster_hosts import BookieHost, BookieWorld
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.network import FIRST_PORT

HELD = "bytes that a writer holds behind a gap"
BUDGETS = {
    "open files of a bookie": 32,
    "calls that wait for a bookie's thread": 4,
    "bytes in a bookie's memory": 512 * 1024,
    "bytes that a bookie's journal has not written": 1024 * 1024,
    "bytes that a bookie holds for its peers": 512 * 1024,  # all that writers send while it looks for their ledger
    "connections of a client to a bookie": 2,  # one for each version of the protocol
    "bytes that one end has not sent": 512 * 1024,
    "polls that a bookie holds": 64,
    HELD: 12 * 1024,  # with the longest entry, which may be one too many
    TASKS: 600,
    TURN: 500,
}


def counts(world: BookieWorld, loop: VirtualLoop, bookies: Sequence[BookieHost]) -> list[tuple[str, int]]:
    """Returns the counts of now, by the names of the budgets."""
    totals = list(of_loop(loop))
    for host in bookies:
        totals.append(("open files of a bookie", len(host.disk.open_files)))
        totals += [("calls that wait for a bookie's thread", worker.pending_count) for worker in host.workers]
        if host.bookie is not None:
            counters = host.bookie.counts
            totals += [
                ("bytes in a bookie's memory", host.bookie.storage.stats().memtable_bytes),
                ("bytes that a bookie's journal has not written", host.bookie.committer.staged_bytes),
                ("bytes that a bookie holds for its peers", counters.unsent_bytes + counters.unfinished_bytes),
                ("polls that a bookie holds", counters.long_polls_waiting),
            ]
    ends = world.fabric.ends()
    links = Counter((end.process, end.peer.process) for end in ends if end.here[1] > FIRST_PORT)
    totals += [("connections of a client to a bookie", count) for count in links.values()]
    totals += [("bytes that one end has not sent", end.get_write_buffer_size()) for end in ends]
    return totals
