"""What all peers of a server hold together: who is counted for how much, and who must go."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.runtime.budget import STEP_RANKED, Budget, CloseReason, Excess

LIMIT, PATIENCE = 1000, 60.0
Peer = TypeVar("Peer", bound=Hashable)


def budget() -> Budget[str]:
    return Budget(LIMIT, PATIENCE)


def excess(held: Budget[Peer], now: float, look: Callable[[Peer], None] = lambda peer: None) -> list[Excess[Peer]]:
    return [found for found in held.excess(now, look) if found is not None]


def test_the_largest_holder_of_unsent_bytes_goes_first_and_no_more_than_needed() -> None:
    held = budget()
    for peer, size in (("a", 300), ("b", 500), ("c", 200)):
        held.unsent(peer, size, 0.0)
    held.unfinished("d", 1, 0.0)
    assert held.over
    assert excess(held, 0.0) == [Excess("b", CloseReason.UNSENT, 500)]
    assert (held.held_bytes, held.over, held.takers()) == (501, False, ("a", "c"))


def test_exactly_the_limit_is_not_too_much() -> None:
    held = budget()
    held.unsent("a", LIMIT, 0.0)
    assert not held.over
    assert excess(held, PATIENCE - 1) == []


def test_what_was_held_for_a_peer_is_told_at_its_end() -> None:
    held = budget()
    held.kept("a", 10)
    held.unfinished("a", 100, 0.0)
    held.unsent("a", 300, 0.0)
    held.unsent("b", 5, 0.0)
    assert [held.forget("a"), held.forget("a"), held.held_bytes] == [410, 0, 5]


def test_an_unfinished_request_does_not_cost_a_reader_when_requests_are_what_fills_memory() -> None:
    held = budget()
    held.unsent("reader", 300, 0.0)
    for number in range(3):
        held.unfinished(f"writer {number}", 250 + number, float(number))
    assert [(found.peer, found.reason) for found in excess(held, 3.0)] == [("writer 0", CloseReason.UNFINISHED)]


def test_peers_that_let_their_frames_trickle_go_before_one_that_sends_a_large_one() -> None:
    held = budget()
    for number in range(9):
        held.unfinished(f"stranger {number}", 100, 0.0)
    held.unfinished("stranger 0", 101, 10.0)  # a byte more is no progress
    for size in (60, 120, 240):
        held.unfinished("sender", size, 10.0)
    gone = excess(held, 10.0)
    assert gone[0].peer == "stranger 0" and len(gone) == 2 and gone[1].peer.startswith("stranger")
    assert {found.reason for found in gone} == {CloseReason.UNFINISHED}


@pytest.mark.parametrize(("size", "progress"), [(500, True), (100, False)])
def test_who_has_had_a_request_served_begins_anew(size: int, progress: bool) -> None:
    held = budget()
    held.unfinished("busy", 400, 0.0)
    held.unfinished("other", 400, 5.0)
    held.unfinished("busy", size, 9.0, progress=progress)
    held.unfinished("third", 1000, 10.0)
    assert excess(held, 10.0)[0].peer == "other"


def test_the_peers_are_sorted_once_for_many_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger at the limit drips: each of his bytes cost a sort of thousands of peers."""
    held: Budget[int] = Budget(64_000, PATIENCE)
    sorts = 0
    until_it_fits = held._until_the_rest_fits

    def counted(look: Callable[[int], None]) -> Iterator[Excess[int] | None]:
        nonlocal sorts
        sorts += 1
        return until_it_fits(look)

    monkeypatch.setattr(held, "_until_the_rest_fits", counted)
    for peer in range(6400):
        held.unfinished(peer, 10, float(peer))
    closed = 0
    for peer in range(6400, 7400):
        held.unfinished(peer, 10, float(peer))
        if held.over:
            closed += len(excess(held, float(peer)))
    assert closed >= 1000 and sorts <= 10


def test_each_step_looks_at_one_peer_and_nobody_goes_for_what_went_out() -> None:
    held: Budget[int] = Budget(100_000, PATIENCE)
    looks: list[int] = []
    out = {peer: 1000 for peer in range(0, 200, 2)}  # taken since it was counted

    def look(peer: int) -> None:
        looks.append(peer)
        held.unsent(peer, 1000 - out.get(peer, 0) + peer, 1.0)

    for peer in range(200):
        held.unsent(peer, 1000 + peer, 0.0)
    held.forget(199)
    steps, gone = held.excess(1.0, look), list[int]()
    ranking = 199 // STEP_RANKED
    for count, found in enumerate(steps, 1):
        assert len(looks) == max(0, count - ranking)
        gone += [found.peer] if found is not None else []
        if count == ranking + 5:
            held.unfinished(500, 3000, 1.0)  # and what comes between steps counts
    assert gone and all(peer % 2 for peer in gone) and not held.over
    assert gone == sorted(gone, reverse=True) and 100_000 * 63 // 64 - 2000 < held.held_bytes <= 100_000 * 63 // 64


def test_to_rank_thousands_takes_steps_and_each_kind_its_own() -> None:
    """A crowd that dripped at the limit had all ranked several times in one turn of the loop: 40 ms."""
    held: Budget[int] = Budget(6000, PATIENCE)
    for peer in range(4000):
        held.unfinished(peer, 2, float(peer))
    steps = list(held.excess(5000.0, lambda peer: None))
    assert steps[: 4000 // STEP_RANKED] == [None] * (4000 // STEP_RANKED) and None not in steps[4000 // STEP_RANKED :]
    assert not held.over


def test_who_stalls_by_the_count_alone_stays() -> None:
    held = budget()
    held.unsent("slow", 10, 0.0)
    held.unsent("stalled", 10, 0.0)
    found = excess(held, PATIENCE, lambda peer: held.unsent(peer, 9 if peer == "slow" else 10, PATIENCE))
    assert found == [Excess("stalled", CloseReason.STALLED, 10)] and held.takers() == ("slow",)


def test_a_request_that_is_served_between_steps_is_no_old_one() -> None:
    held = budget()
    for number in range(8):
        held.unfinished(str(number), 200, float(number))
    steps = held.excess(10.0, lambda peer: None)
    assert next(steps) == Excess("0", CloseReason.UNFINISHED, 200)
    held.unfinished("1", 200, 9.0, progress=True)
    assert [found.peer for found in steps if found is not None] == ["2", "3", "4"]


def test_who_ends_between_steps_is_not_looked_at_and_takes_a_step() -> None:
    held: Budget[int] = Budget(10_000, PATIENCE)
    looks: list[int] = []
    for peer in range(20):
        held.unsent(peer, 1000 + peer, 0.0)
    steps = held.excess(1.0, looks.append)
    assert next(steps) == Excess(19, CloseReason.UNSENT, 1019)
    for peer in (18, 17, 15):
        held.forget(peer)
    assert [next(steps) for _ in range(2)] == [None, None]
    assert next(steps) == Excess(16, CloseReason.UNSENT, 1016)
    assert next(steps) is None and looks == [19, 16]


def test_who_stalled_and_ends_between_steps_is_not_closed_again() -> None:
    held = budget()
    for peer in "abc":
        held.unsent(peer, 10, 0.0)
    steps = held.excess(PATIENCE, lambda peer: None)
    assert next(steps) == Excess("a", CloseReason.STALLED, 10)
    held.forget("b")
    assert list(steps) == [None, Excess("c", CloseReason.STALLED, 10)]


def test_each_look_at_one_that_seemed_to_stall_is_a_step() -> None:
    held: Budget[int] = Budget(LIMIT, PATIENCE)
    looks: list[int] = []

    def look(peer: int) -> None:
        looks.append(peer)
        held.unsent(peer, 9, PATIENCE)

    for peer in range(5):
        held.unsent(peer, 10, 0.0)
    for count, found in enumerate(held.excess(PATIENCE, look), 1):
        assert (found, len(looks)) == (None, count)
    assert looks == list(range(5))


def test_who_took_a_little_and_is_still_the_largest_goes() -> None:
    held = budget()
    for peer, size in (("a", 400), ("b", 300), ("c", 200), ("d", 150)):
        held.unsent(peer, size, 0.0)
    found = excess(held, 0.0, lambda peer: held.unsent(peer, 350, 0.0) if peer == "a" else None)
    assert found == [Excess("a", CloseReason.UNSENT, 350)]


def test_of_what_is_most_who_holds_it_goes_at_each_step() -> None:
    held = budget()
    for number in range(6):
        held.unsent(f"reader {number}", 100, 0.0)
        held.unfinished(f"sender {number}", 99, 0.0)
    assert [found.reason for found in excess(held, 0.0)] == [
        CloseReason.UNSENT,
        CloseReason.UNFINISHED,
        CloseReason.UNSENT,
    ]


def test_what_comes_while_the_last_ones_are_closed_goes_too() -> None:
    held = budget()
    held.unsent("a", 2 * LIMIT, 0.0)
    steps = held.excess(0.0, lambda peer: held.unsent("b", 3 * LIMIT, 0.0))
    assert [found.peer for found in steps if found is not None] == ["a", "b"]
    assert not held.over


def test_as_many_bytes_as_before_are_no_progress() -> None:
    held = budget()
    held.unfinished("dripping", 400, 0.0)
    held.unfinished("sender", 400, 5.0)
    held.unfinished("dripping", 400, 9.0)
    held.unfinished("third", 300, 10.0)
    assert [found.peer for found in excess(held, 10.0)] == ["dripping"]


def test_what_is_remembered_costs_those_of_whom_most_is() -> None:
    held = budget()
    held.kept("idle", 100)
    held.kept("stranger", 700)
    held.unfinished("sender", 300, 0.0)
    assert excess(held, 0.0) == [Excess("stranger", CloseReason.KEPT, 700)]
    held.kept("idle", 0)
    assert (held.kept_bytes, held.held_bytes) == (0, 300)


def test_who_takes_nothing_for_a_time_goes_though_there_is_room() -> None:
    held = budget()
    held.unsent("stalled", 10, 0.0)
    held.unsent("slow", 10, 0.0)
    held.unsent("slow", 9, 30.0)
    held.unsent("stalled", 10, 30.0)
    assert excess(held, PATIENCE - 0.1) == []
    assert excess(held, PATIENCE) == [Excess("stalled", CloseReason.STALLED, 10)]
    assert held.takers() == ("slow",)
    assert excess(held, 30.0 + PATIENCE) == [Excess("slow", CloseReason.STALLED, 9)]


def test_what_was_taken_of_a_buffer_that_stays_whole_counts() -> None:
    held = budget()
    held.unsent("a", 100, 0.0)
    held.unsent("a", 100, 30.0, has_taken=True)
    assert excess(held, PATIENCE) == []
    assert [found.peer for found in excess(held, 30.0 + PATIENCE)] == ["a"]


def test_who_has_nothing_to_take_is_never_late() -> None:
    held = budget()
    held.unsent("a", 10, 0.0)
    held.unsent("a", 0, 1.0)
    assert excess(held, 1e9) == []
    held.unsent("a", 10, 1e9)
    assert excess(held, 1e9 + PATIENCE / 2) == []


def test_nothing_held_is_nobody_s() -> None:
    held = budget()
    held.unsent("a", 0, 0.0)
    held.unfinished("a", 0, 0.0)
    held.kept("a", 0)
    assert (excess(held, 1e9), held.takers(), held.held_bytes) == ([], (), 0)
    held.forget("unknown")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("unsent", "unfinished", "kept", "forget", "excess")),
        st.integers(0, 4),
        st.integers(0, LIMIT // 2),
    ),
    max_size=60,
)


@given(EVENTS, st.integers(0, 1 << 30))
def test_sums_are_those_of_a_recount(events: list[tuple[str, int, int]], seed: int) -> None:
    held: Budget[int] = Budget(LIMIT, PATIENCE)
    unsent: dict[int, int] = {}
    unfinished: dict[int, int] = {}
    kept: dict[int, int] = {}
    now, chance = 0.0, random.Random(seed)
    for event, peer, size in events:
        now += chance.random() * PATIENCE / 2
        if event == "unsent":
            held.unsent(peer, size, now, has_taken=chance.random() < 0.5)
            unsent[peer] = size
        elif event == "unfinished":
            held.unfinished(peer, size, now, progress=chance.random() < 0.5)
            unfinished[peer] = size
        elif event == "kept":
            held.kept(peer, size)
            kept[peer] = size
        elif event == "forget":
            held.forget(peer)
            unsent.pop(peer, None), unfinished.pop(peer, None), kept.pop(peer, None)
        else:
            for found in excess(held, now):
                unsent.pop(found.peer, None), unfinished.pop(found.peer, None), kept.pop(found.peer, None)
            assert not held.over
        assert held.unsent_bytes == sum(unsent.values())
        assert held.unfinished_bytes == sum(unfinished.values())
        assert held.kept_bytes == sum(kept.values())
        assert sorted(held.takers()) == sorted(peer for peer, size in unsent.items() if size)
