"""What is said of where a ledger's fragments lie."""

from __future__ import annotations

from tallystick.admin.placement import placement_of
from tallystick.bookkeeper.ledger.locations import Locations
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.wire.registration import MACHINE, RACK
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata


def registered(**bookies: str) -> RegisteredBookies:
    """Bookies by name, each with "machine rack"."""
    infos = {}
    for name, where in bookies.items():
        machine, rack = where.split()
        infos[name] = BookieInfo(BookieInfo.at("127.0.0.1", 1).endpoints, {MACHINE: machine, RACK: rack})
    return RegisteredBookies(infos)


def test_each_fragment_is_judged_by_its_write_sets() -> None:
    bookies = registered(a="m1 /r1", b="m1 /r2", c="m2 /r2", d="m3 /r1")
    fragments = (
        Fragment(0, ("a", "c", "d", "c2:3181")),
        Fragment(10, ("a", "b", "c", "d")),
        Fragment(20, ("a", "c", "b", "d")),
        Fragment(30, ("c", "a", "d", "b")),
    )
    ledger = LedgerMetadata(4, 2, 2, fragments)
    placements = placement_of(ledger, bookies, Locations())
    assert [(one.machines_each, one.racks_each, one.obeys) for one in placements] == [
        (2, 2, True),
        (1, 1, False),
        (2, 1, False),
        (2, 1, False),
    ]
    assert placements[0].gone == ("c2:3181",) and not placements[1].gone
    assert placements[0].bookies["c2:3181"].machine == "c2"
    assert str(placements[1]).startswith("from 10: NOT APART, entries on 1 machine and 1 rack at least: a (m1 /r1), ")
    assert str(placements[0]).endswith("; not registered: c2:3181")


def test_no_more_is_asked_than_the_cluster_has() -> None:
    ledger = LedgerMetadata(2, 2, 2, (Fragment(0, ("a", "b")),))
    assert placement_of(ledger, registered(a="m1 /r1", b="m1 /r1"), Locations())[0].obeys
    assert not placement_of(ledger, registered(a="m1 /r1", b="m1 /r1", c="m2 /r1"), Locations())[0].obeys
