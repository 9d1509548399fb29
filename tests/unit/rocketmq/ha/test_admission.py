from __future__ import annotations

from tallystick.rocketmq.ha.admission import AdmissionCore


def admission(known: int = 4, strangers: int = 2) -> AdmissionCore[str]:
    return AdmissionCore(known, strangers)


def test_a_newcomer_takes_the_place_of_the_oldest_of_the_most_crowded_host() -> None:
    port = admission(strangers=3)
    assert [port.arrived(link, host) for link, host in (("a1", "a"), ("b1", "b"), ("b2", "b"))] == [None] * 3
    assert port.arrived("c1", "c") == "b1"
    port.disconnected("b1")
    assert port.arrived("d1", "d") == "a1", "one each: the oldest"


def test_strangers_without_anything_to_show_make_room_for_each_other() -> None:
    port = admission()
    for link in ("one", "two"):
        port.arrived(link, "h")
        assert port.started(link, None, compared=False) is None
    port.took("one")
    port.arrived("three", "h")
    assert port.started("three", None, compared=False) == "two"
    port.disconnected("two")
    port.took("three")
    port.arrived("four", "h")
    assert port.started("four", None, compared=False) == "four", "both others took something: refused"


def test_of_slaves_that_are_away_the_one_that_was_here_last_is_remembered() -> None:
    port = admission(known=2, strangers=0)
    for link, slave_id in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("c1", "c")):
        assert port.started(link, slave_id, compared=True) is None
        port.disconnected(link)
    assert port.started("a3", "a", compared=False) is None
    port.disconnected("a3")
    assert port.started("b2", "b", compared=False) == "b2", "a stranger again"


def test_an_id_that_showed_its_log_needs_no_strangers_place() -> None:
    port = admission()
    for link in ("one", "two"):
        port.arrived(link, "h")
        port.started(link, None, compared=False)
    port.arrived("slave", "s")
    assert port.started("slave", "b:1", compared=True) is None
    assert len(port) == 3


def test_an_empty_slave_is_a_stranger_until_it_took_something_and_known_for_ever_after() -> None:
    port = admission(strangers=1)
    port.arrived("slave", "s")
    assert port.started("slave", "b:1", compared=False) is None
    port.took("slave")
    port.disconnected("slave")
    port.arrived("stranger", "h")
    assert port.started("stranger", None, compared=False) is None
    port.arrived("again", "s")
    assert port.started("again", "b:1", compared=False) is None, "its disk was lost, its id is known"


def test_ids_are_bounded_and_one_that_is_away_makes_room() -> None:
    port = admission(known=2, strangers=1)
    for number in (1, 2):
        port.arrived(f"s{number}", "h")
        assert port.started(f"s{number}", f"b:{number}", compared=True) is None
    port.arrived("s3", "h")
    assert port.started("s3", "b:3", compared=True) is None, "as a stranger"
    port.arrived("s4", "h")
    assert port.started("s4", "b:4", compared=True) == "s3", "both known ones are there: it needs a stranger's place"
    port.disconnected("s3")
    port.disconnected("s1")
    port.took("s4")
    port.arrived("x", "h")
    assert port.started("x", None, compared=False) is None, "b:4 took the place of b:1, which was away"


def test_a_second_link_of_an_id_is_the_same_place() -> None:
    port = admission(known=1, strangers=1)
    port.arrived("old", "h")
    port.started("old", "b:1", compared=True)
    port.arrived("new", "h")
    assert port.started("new", "b:1", compared=True) is None
    port.disconnected("old")
    assert len(port) == 1
