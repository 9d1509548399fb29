"""Searches by time in queues that a slave went on with behind its master's ends: fillers have no time."""

from __future__ import annotations

import pytest

from support.message_stores import Shelf
from tallystick.rocketmq.store.values import TimeBoundary


def promoted(lost: int, more: int) -> tuple[Shelf, list[int]]:
    """A slave with ten messages a second apart, that became the master behind ``lost`` that it never had, and has
    ``more`` of its own. Returns it, and when each was stored."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    times = []
    for number in range(10):
        master.clock.ms += 1000
        times.append(master.clock.ms)
        master.send(b"%d" % number)
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    slave.settle()
    master.send(*[b"lost with the master"] * lost)
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end)
    slave.clock.ms = master.clock.ms + 60_000
    slave.disk.kill()
    slave.open(slave=False)
    for number in range(more):
        slave.clock.ms += 1000
        times.append(slave.clock.ms)
        slave.send(b"new %d" % number)
    slave.settle()
    return slave, times


@pytest.mark.rule("H12")
@pytest.mark.parametrize("more", [0, 1, 5])
@pytest.mark.parametrize("lost", [1, 3, 30, 90])
def test_h12_a_search_by_time_passes_over_no_message_of_a_promoted_slave(lost: int, more: int) -> None:
    slave, times = promoted(lost, more)
    offsets = [*range(10), *range(10 + lost, 10 + lost + more)]
    for offset, at in zip(offsets, times, strict=True):
        for boundary in TimeBoundary:
            assert slave.store.offset_at("Topic", 0, at, boundary) == offset
    for (offset, before), at in zip(zip(offsets[1:], offsets, strict=False), times[1:], strict=True):
        assert slave.store.offset_at("Topic", 0, at - 1, TimeBoundary.LOWER) == offset
        assert slave.store.offset_at("Topic", 0, at - 1, TimeBoundary.UPPER) == before
    end = slave.store.queue_range("Topic", 0)[1]
    assert slave.store.offset_at("Topic", 0, times[-1] + 1, TimeBoundary.LOWER) == end
    assert slave.store.offset_at("Topic", 0, times[-1] + 1, TimeBoundary.UPPER) == offsets[-1]
    assert slave.store.offset_at("Topic", 0, 0, TimeBoundary.UPPER) == 0
