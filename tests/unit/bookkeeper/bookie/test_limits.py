"""When a bookie is read-only."""

from __future__ import annotations

from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.runtime.disk import Usage

GIB = 1024**3


def test_a_disk_over_the_threshold_makes_it_read_only_and_below_it_writable_again() -> None:
    guard = DiskGuard(0.95)
    assert not guard.measured([Usage(100 * GIB, 5 * GIB)])
    assert guard.accepts(high_priority=False)
    assert guard.measured([Usage(100 * GIB, 50 * GIB), Usage(100 * GIB, 4 * GIB)])
    assert guard.read_only
    assert not guard.accepts(high_priority=False)
    assert guard.accepts(high_priority=True)
    assert not guard.measured([Usage(100 * GIB, GIB - 1)])
    assert not guard.accepts(high_priority=True)
    assert guard.measured([Usage(100 * GIB, 6 * GIB)])
    assert guard.accepts(high_priority=False)


def test_recovery_needs_a_share_of_a_small_disk_a_gib_of_a_large_one_or_what_is_set() -> None:
    for total, spare, setting in (
        (10 * GIB, GIB // 10, None),
        (100 * GIB, GIB, None),
        (8000 * GIB, GIB, None),
        (10 * GIB, 7, 7),
        (GIB, 0, 0),
    ):
        guard = DiskGuard(0.9, setting)
        for free, accepted in ((spare, True), (spare - 1, False)):
            guard.measured([Usage(total, free)])
            assert guard.accepts(high_priority=True) is accepted, (total, free)
            assert not guard.accepts(high_priority=False)


def test_what_found_no_space_keeps_it_read_only_until_it_was_written() -> None:
    guard = DiskGuard(0.95)
    assert guard.filled("commit")
    assert not guard.filled("commit")
    assert not guard.filled("checkpoint")
    assert not guard.accepts(high_priority=True)
    assert not guard.measured([Usage(100 * GIB, 50 * GIB)])
    assert not guard.written("commit")
    assert guard.read_only
    assert guard.written("checkpoint")
    assert not guard.read_only
    assert not guard.written("commit")


def test_a_drained_bookie_takes_recovery_alone_also_while_its_disk_is_full() -> None:
    guard = DiskGuard(0.95)
    assert guard.set_drained(True) and not guard.set_drained(True)
    assert guard.read_only and guard.reason == "drained by hand"
    assert guard.accepts(high_priority=True) and not guard.accepts(high_priority=False)
    assert not guard.measured([Usage(100 * GIB, 4 * GIB)]), "it was read-only before"
    assert guard.reason == "disk space"
    assert guard.set_drained(False)
    assert guard.read_only
    guard.measured([Usage(100 * GIB, 6 * GIB)])
    assert not guard.read_only


def test_a_disk_fills_before_it_is_too_full_and_never_later() -> None:
    guard = DiskGuard(0.95, warn=0.9)
    assert [guard.is_filling(Usage(100 * GIB, free * GIB)) for free in (4, 9, 10, 50)] == [True, True, False, False]
    assert DiskGuard(0.5, warn=0.9).is_filling(Usage(100 * GIB, 40 * GIB)), "the bookie is read-only then"
    assert not DiskGuard(0.95).is_filling(Usage(100 * GIB, 5 * GIB))
