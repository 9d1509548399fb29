"""Nobody is served for longer than a turn has time, in order, adds before reads."""

from __future__ import annotations

from tallystick.bookkeeper.bookie.turns import Kind, Turns


def turns() -> Turns[str]:
    return Turns(1.0)


def serve(made: Turns[str], seconds: float) -> list[str]:
    served = []
    for peer, kind in made.begin():
        served.append(peer)
        made.spent(kind, seconds)
    return served


def test_all_are_admitted_until_the_time_of_their_kind_is_up() -> None:
    made = turns()
    for _ in range(2):
        assert made.admits(Kind.ADD) and made.admits(Kind.READ)
        made.spent(Kind.READ, 0.5)
    assert made.admits(Kind.ADD) and not made.admits(Kind.READ)
    assert not made.due
    assert serve(made, 0.0) == []
    assert made.admits(Kind.READ)


def test_who_waits_is_served_in_order_adds_first_and_only_while_there_is_time() -> None:
    made = turns()
    for reader in ("r0", "r1", "r2"):
        made.wait(Kind.READ, reader)
    for writer in ("w0", "w1", "w2"):
        made.wait(Kind.ADD, writer)
    assert not made.admits(Kind.ADD) and not made.admits(Kind.READ), "nobody passes those who wait"
    assert serve(made, 0.6) == ["w0", "w1", "r0", "r1"]
    assert made.due
    assert serve(made, 0.6) == ["w2", "r2"]
    assert not made.due


def test_adds_without_end_leave_readers_their_time() -> None:
    made = turns()
    made.wait(Kind.READ, "reader")
    for number in range(10):
        made.wait(Kind.ADD, f"writer {number}")
    assert serve(made, 5.0) == ["writer 0", "reader"]


def test_who_waits_again_in_its_turn_is_served_in_the_next() -> None:
    made = turns()
    made.wait(Kind.ADD, "a")
    for peer, kind in made.begin():
        assert peer == "a"
        made.wait(kind, peer)
    assert made.due
    assert serve(made, 0.0) == ["a"]


def test_who_left_is_not_served() -> None:
    made = turns()
    for peer in ("a", "b"):
        made.wait(Kind.READ, peer)
    served = []
    for peer, _ in made.begin():
        served.append(peer)
        made.leave("b")
    assert served == ["a"]
    assert not made.due
