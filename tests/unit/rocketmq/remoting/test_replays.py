"""Which signed requests count: each once, in time, and as what it is."""

from __future__ import annotations

import random

import pytest

from tallystick.rocketmq.remoting import replays
from tallystick.rocketmq.remoting.replays import SKEW_MS, WIDTH, Numbered, Replays

NOW = 1_700_000_000_000


@pytest.mark.rule("N13")
def test_n13_a_number_counts_once_whatever_the_order() -> None:
    """Compared with a set of all that came, on random orders within the window."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance, served, came = random.Random(seed), Replays(), set[str]()
    numbered = [Numbered(connection) for connection in range(3)]
    fields = [each.next(10, NOW + step) for step in range(400) for each in numbered]
    fields.sort(key=lambda field: int(field.split(".")[2]) + chance.uniform(0, WIDTH / 2))
    for _ in range(5000):
        field = chance.choice(fields[: len(came) + 50])
        assert (served.refusal("ann", field, 10, NOW) is None) is (field not in came)
        came.add(field)


@pytest.mark.rule("N13")
@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("", "form"),
        ("0000000000000001.x.1.10", "form"),
        ("0000000000000001.1700000000000.1", "form"),
        ("0000000000000001.1700000000000.\u0661.10", "form"),
        ("1" * 10_000, "form"),
        ("0000000000000001.1700000000000.1.11", "another kind"),
        (f"0000000000000001.{NOW - SKEW_MS - 1}.1.10", "clocks"),
        (f"0000000000000001.{NOW + SKEW_MS + 1}.1.10", "clocks"),
    ],
)
def test_n13_what_is_late_of_another_kind_or_no_number_does_not_count(field: str, why: str) -> None:
    assert why in (Replays().refusal("ann", field, 10, NOW) or "")


@pytest.mark.rule("N13", "N12")
def test_n13_what_is_forgotten_to_make_room_does_not_count_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_CONNECTIONS", 3)
    served = Replays()
    fields = [Numbered(connection).next(10, NOW + connection) for connection in range(9)]
    for number, field in enumerate(fields):
        assert served.refusal("ann", field, 10, NOW) is None
        assert all(served.refusal("ann", before, 10, NOW) for before in fields[: number + 1])
    assert served._connections == 3


@pytest.mark.rule("N12", "N13")
def test_n12_a_user_with_very_many_connections_keeps_nobody_else_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """His clock may be ahead of theirs, so that all of theirs would be older than what is forgotten of him."""
    monkeypatch.setattr(replays, "MOST_CONNECTIONS", 8)
    served = Replays()
    ahead = [Numbered(connection).next(10, NOW + SKEW_MS) for connection in range(40)]
    for number, field in enumerate(ahead):
        hers = Numbered(1000 + number).next(10, NOW - SKEW_MS + number)
        if number % 10 == 9:
            assert served.refusal("ann", hers, 10, NOW) is None
            assert served.refusal("ann", hers, 10, NOW)
        served.refusal("mallory", field, 10, NOW)
    assert all(served.refusal("mallory", field, 10, NOW) for field in ahead)
    assert served._connections == 8


@pytest.mark.rule("N13")
def test_n13_a_number_far_behind_the_newest_does_not_count() -> None:
    served, numbered = Replays(), Numbered(7)
    first, *_, newest = (numbered.next(10, NOW) for _ in range(WIDTH + 1))
    assert served.refusal("ann", newest, 10, NOW) is None
    assert served.refusal("ann", first, 10, NOW)


@pytest.mark.rule("N13")
def test_n13_the_connection_that_was_quiet_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_CONNECTIONS", 2)
    served, oldest, quiet = Replays(), Numbered(1), Numbered(2)
    for numbered in (oldest, quiet, oldest):
        assert served.refusal("ann", numbered.next(10, NOW), 10, NOW) is None
    assert served.refusal("ann", Numbered(3).next(10, NOW + 1), 10, NOW) is None
    assert served.refusal("ann", oldest.next(10, NOW), 10, NOW) is None, "it is remembered"
    assert served.refusal("ann", quiet.next(10, NOW), 10, NOW)


@pytest.mark.rule("N13")
def test_n13_what_was_too_old_stays_so_when_one_of_a_slower_clock_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_CONNECTIONS", 2)
    served, ahead = Replays(), Numbered(1).next(10, NOW + 1000)
    assert served.refusal("ann", ahead, 10, NOW) is None
    assert served.refusal("ann", Numbered(2).next(10, NOW), 10, NOW) is None
    for connection in (3, 4, 5):  # which have both of these forgotten
        assert served.refusal("ann", Numbered(connection).next(10, NOW + 2000 + connection), 10, NOW) is None
        assert served.refusal("ann", ahead, 10, NOW)


@pytest.mark.rule("N12", "N13")
def test_n12_who_has_most_connections_makes_room_whoever_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_CONNECTIONS", 4)
    served, ann = Replays(), Numbered(1)
    assert served.refusal("ann", ann.next(10, NOW), 10, NOW) is None
    for connection in range(10, 20):
        assert served.refusal("mallory", Numbered(connection).next(10, NOW + connection), 10, NOW) is None
        assert served.refusal("ann", ann.next(10, NOW), 10, NOW) is None
