"""A promotion that is killed wherever it is: what its master told of queues made anew holds."""

from __future__ import annotations

import contextlib

from support.message_stores import Shelf
from tallystick.sim.disk import Crashed


def killed_before_it_dispatched() -> Shelf:
    """A slave, killed: three messages of a topic that was made anew are in its log and in no queue, and its master told
    of four more."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*[b"old"] * 5)
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    slave.settle()
    master.store.delete_topics(["Topic"]).run()
    start = master.store.end
    master.send(*[b"new"] * 3)
    slave.store.append_raw(start, bytes(master.store.slice(start, 4096)))
    slave.store.flush()
    master.send(*[b"lost with the master"] * 4)
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end)
    slave.disk.kill()
    return slave


def test_what_was_told_of_a_queue_made_anew_holds_wherever_a_promotion_is_killed() -> None:
    operation, is_open = 0, False
    while not is_open:  # the last time: killed before its first checkpoint
        operation += 1
        slave = killed_before_it_dispatched()
        slave.disk.crash_at = slave.disk.operations + operation
        with contextlib.suppress(Crashed):
            slave.open(slave=False)
            is_open = True
        slave.disk.kill()
        slave.disk.crash_at = None
        slave.open(slave=False)
        assert (slave.bodies(), slave.store.queue_range("Topic", 0)) == ([b"new"] * 3, (0, 7))
    assert operation > 1
    assert slave.send(b"newest")[0].queue_offset == 7


def test_what_was_told_of_a_queue_counts_no_more_for_the_next_topic_of_that_name() -> None:
    slave = killed_before_it_dispatched()
    slave.open(slave=False)
    slave.settle()
    slave.store.delete_topics(["Topic"]).run()
    for _ in range(2):
        slave.disk.kill()
        slave.open()
        assert slave.store.queue_range("Topic", 0) == (0, 0)
    assert slave.send(b"newest")[0].queue_offset == 0
