"""Which response belongs to which request, against a plain list of all requests in the order they were asked."""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass

import pytest

from tallystick.bookkeeper.ledger.lanes import Lane
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore

TIMEOUT = 10.0
ADDS = (1, 1)  # opcode and ledger


@dataclass
class Asked:
    """The twin's whole state: one request."""

    lane: int
    entry: int
    deadline: float
    expired: bool = False


class Twin:
    """Answers go to the oldest request of the entry; those of closed lanes and overdue ones go to nobody."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.closed: set[int] = set()

    def answered(self, entry: int) -> int | None:
        """The lane that hears of it."""
        for request in self.asked:
            if request.entry == entry:
                self.asked.remove(request)
                return None if request.expired or request.lane in self.closed else request.lane
        raise KeyError(entry)

    def expire(self, now: float) -> list[tuple[int, int]]:
        overdue = [q for q in self.asked if q.deadline <= now and not q.expired]
        for request in overdue:
            request.expired = True
        return [(q.lane, q.entry) for q in overdue if q.lane not in self.closed]


def test_random_schedules_agree_with_the_twin() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    reported, expired = 0, 0
    for number in range(300):
        answers, overdue = run_schedule(random.Random(seed + number))
        reported, expired = reported + answers, expired + overdue
    assert min(reported, expired) > 300, "too little happened to prove anything"


def run_schedule(chance: random.Random) -> tuple[int, int]:
    """One ledger, lanes one after another, runs of ADDs answered in order, out of order, late or never.

    Returns how many answers were reported, and how many requests were reported as overdue.
    """
    outstanding: OutstandingCore[int] = OutstandingCore()
    twin, lanes = Twin(), [outstanding.lane(ADDS, 0)]
    now, following, reported, overdue = 0.0, 0, 0, 0
    reports: list[tuple[int, int]] = []
    answers: list[int] = []

    def hear(owner: int, start: int, stop: int) -> None:
        reports.extend((owner, entry) for entry in answers[start:stop])

    for _ in range(60):
        action = chance.random()
        if action < 0.4:
            count = chance.randint(1, 5)
            entries = list(range(following, following + count))
            following += count
            outstanding.sent(lanes[-1], entries, now, TIMEOUT)
            twin.asked += [Asked(len(lanes) - 1, entry, now + TIMEOUT) for entry in entries]
        elif action < 0.75 and twin.asked:
            answers = [request.entry for request in twin.asked[: chance.randint(1, 6)]]
            if chance.random() < 0.3:
                chance.shuffle(answers)
            expected = [(lane, entry) for entry in answers if (lane := twin.answered(entry)) is not None]
            reports.clear()
            assert outstanding.answered_run(ADDS, answers, hear) == len(answers)
            assert reports == expected
            reported += len(reports)
        elif action < 0.85:
            now += chance.choice([1.0, 5.0, 11.0])
            expired = [(owner, entry) for owner, entries in outstanding.expire(now).entries for entry in entries]
            assert sorted(expired) == sorted(twin.expire(now))
            overdue += len(expired)
        elif action < 0.9:
            outstanding.forget(lanes[-1])
            twin.closed.add(len(lanes) - 1)
            lanes.append(outstanding.lane(ADDS, len(lanes)))
            following = min((q.entry for q in twin.asked), default=following)  # the next attempt sends them again
        elif action < 0.95:
            unknown = following + 1000
            assert outstanding.answered_run(ADDS, [unknown], hear) == 0
    left = [(q.lane, q.entry) for q in twin.asked if not q.expired and q.lane not in twin.closed]
    assert [(owner, entry) for owner, entries in outstanding.take_all() for entry in entries] == left
    assert outstanding.wake_at() is None
    return reported, overdue


def test_the_next_deadline_is_that_of_the_oldest_open_question() -> None:
    outstanding: OutstandingCore[str] = OutstandingCore()
    lane = outstanding.lane(ADDS, "lane")
    assert outstanding.wake_at() is None
    outstanding.sent(lane, [0, 1], 1.0, 5.0)
    outstanding.sent(lane, [2], 2.0, 5.0)
    outstanding.add_request((2, 1, 0), 0, "read", 0.5, 9.0)
    assert outstanding.wake_at() == 6.0
    assert outstanding.answered_run(ADDS, [0, 1], lambda *_: None) == 2
    assert outstanding.wake_at() == 7.0
    assert outstanding.answered_run(ADDS, [2], lambda *_: None) == 1
    assert outstanding.wake_at() == 9.5
    found = outstanding.answered((2, 1, 0))
    assert found is not None
    assert found.owner == "read"
    assert outstanding.wake_at() is None


def test_an_overdue_answer_comes_before_a_younger_lane() -> None:
    outstanding: OutstandingCore[str] = OutstandingCore()
    outstanding.sent(outstanding.lane(ADDS, "old"), [5], 0.0, 1.0)
    outstanding.sent(outstanding.lane(ADDS, "young"), [5], 0.9, 1.0)
    assert outstanding.expire(1.0).entries == [("old", [5])]
    reports: list[str] = []
    for expected in ([], ["young"]):
        assert outstanding.answered_run(ADDS, [5], lambda owner, start, stop: reports.append(owner)) == 1
        assert reports == expected
    assert outstanding.answered_run(ADDS, [5], lambda *_: None) == 0


def test_questions_with_one_key_are_answered_in_turn() -> None:
    outstanding: OutstandingCore[str] = OutstandingCore()
    for owner in ("first", "second", "third"):
        outstanding.add_request((2, 1, 0), 0, owner, 0.0, 5.0)
    expired = outstanding.expire(1.0)
    assert not expired
    owners = []
    while (request := outstanding.answered((2, 1, 0))) is not None:
        owners.append(request.owner)
    assert owners == ["first", "second", "third"]


def test_overdue_questions_are_reported_once_and_keep_their_place() -> None:
    outstanding: OutstandingCore[str] = OutstandingCore()
    outstanding.add_request((2, 1, 0), 0, "old", 0.0, 5.0)
    expired = outstanding.expire(5.0)
    assert (expired.entries, expired.since, outstanding.abandoned) == ([("old", [0])], 0.0, 1)
    assert not outstanding.expire(100.0)
    outstanding.add_request((2, 1, 0), 0, "new", 101.0, 5.0)
    first, second = outstanding.answered((2, 1, 0)), outstanding.answered((2, 1, 0))
    assert first is not None and first.owner is None
    assert second is not None and second.owner == "new"


class Counted(int):
    """An entry that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


@pytest.mark.parametrize("order", ["reverse", "swapped", "shuffled", "twice"])
def test_answers_in_any_order_cost_some_comparisons_each(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    count = 4000
    entries = list(range(count))
    match order:
        case "reverse":
            entries.reverse()
        case "swapped":
            entries = [entry ^ 1 for entry in entries]
        case "shuffled":
            random.Random(7).shuffle(entries)
        case "twice":  # two requests about each
            entries = [*reversed(entries[: count // 2])] * 2
    outstanding: OutstandingCore[str] = OutstandingCore()
    lane = outstanding.lane(ADDS, "owner")
    outstanding.sent(lane, [Counted(entry) for entry in sorted(entries)], 0.0, 1.0)
    monkeypatch.setattr(Counted, "compared", 0)
    reports: list[int] = []
    for first in range(0, count, 1000):
        part = entries[first : first + 1000]

        def hear(owner: str, start: int, stop: int, part: list[int] = part) -> None:
            reports.extend(part[start:stop])

        assert outstanding.answered_run(ADDS, part, hear) == len(part)
    assert reports == entries and not len(lane)
    assert Counted.compared < 20 * count


def test_what_is_due_is_found_without_a_look_at_every_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    outstanding: OutstandingCore[int] = OutstandingCore()
    for ledger in range(10_000):
        outstanding.sent(outstanding.lane((1, ledger), ledger), [0], ledger * 0.001, 5.0)
    looks: list[int] = []
    deadline = Lane.deadline

    def counted(lane: Lane[int]) -> float | None:
        looks.append(1)
        return deadline(lane)

    monkeypatch.setattr(Lane, "deadline", counted)
    assert outstanding.wake_at() == 5.0
    assert [owner for owner, _ in outstanding.expire(5.0095).entries] == list(range(10))
    assert outstanding.wake_at() == 5.01
    assert len(looks) < 100


def test_a_lane_that_was_left_is_due_and_nobody_hears_of_it() -> None:
    outstanding: OutstandingCore[str] = OutstandingCore()
    left, stays = outstanding.lane(ADDS, "left"), outstanding.lane((1, 8), "stays")
    outstanding.sent(left, [0], 0.0, 1.0)
    outstanding.sent(stays, [0], 0.5, 1.0)
    outstanding.forget(left)
    assert outstanding.wake_at() == 1.0
    expired = outstanding.expire(1.0)
    assert (bool(expired), expired.since, expired.entries, expired.ownerless) == (True, 0.0, [], 1)
    assert outstanding.expire(2.0).entries == [("stays", [0])]
    assert outstanding.wake_at() is None
    assert outstanding.answered_in_lane(ADDS, 0) is not None, "its late answer is swallowed"
    assert not outstanding.has_lanes(ADDS)


def test_a_lane_that_was_left_is_held_by_nothing_once_it_is_answered() -> None:
    """Its deadline is seconds away: the lanes of thousands of ledgers would be kept until then."""

    def lanes() -> int:
        return sum(isinstance(one, Lane) for one in gc.get_objects())

    outstanding, before = OutstandingCore[str](), lanes()
    lane = outstanding.lane(ADDS, "a")
    outstanding.sent(lane, [1, 2], 0.0, TIMEOUT)
    outstanding.answered_run(ADDS, [1], lambda *_: None)
    outstanding.forget(lane)
    del lane
    assert lanes() == before + 1
    assert outstanding.answered_in_lane(ADDS, 2) is not None
    assert lanes() == before
    assert (outstanding.wake_at(), outstanding.expire(TIMEOUT).ownerless) == (None, 0)


def test_a_lane_that_was_left_is_held_by_nothing_once_a_run_of_answers_came() -> None:
    outstanding: OutstandingCore[str] = OutstandingCore()
    lane = outstanding.lane(ADDS, "a")
    outstanding.sent(lane, [1, 2], 0.0, TIMEOUT)
    outstanding.forget(lane)
    assert outstanding.answered_run(ADDS, [1, 2], lambda *_: None) == 2
    assert not outstanding.has_lanes(ADDS)


def test_requests_behind_some_that_were_answered_out_of_turn_are_overdue_in_time() -> None:
    """When the deadline of these comes none of them is overdue; that of the ones behind them comes all the same."""
    outstanding: OutstandingCore[int] = OutstandingCore()
    lane = outstanding.lane(ADDS, 7)
    for entry in range(3):
        outstanding.sent(lane, [entry], float(entry), TIMEOUT)
    assert outstanding.answered_in_lane(ADDS, 1) is lane
    assert outstanding.expire(TIMEOUT).entries == [(7, [0])]
    assert not outstanding.expire(TIMEOUT + 1)
    assert outstanding.wake_at() == TIMEOUT + 2
    assert outstanding.expire(TIMEOUT + 2).entries == [(7, [2])]


def test_answers_out_of_turn_are_found_also_behind_many_that_were_settled() -> None:
    outstanding: OutstandingCore[str] = OutstandingCore()
    lane = outstanding.lane(ADDS, "owner")
    outstanding.sent(lane, range(100), 0.0, TIMEOUT)
    assert outstanding.answered_run(ADDS, list(range(100)), lambda *_: None) == 100
    outstanding.sent(lane, range(100, 6000), 0.0, TIMEOUT)
    assert all(outstanding.answered_in_lane(ADDS, entry) is lane for entry in reversed(range(100, 6000)))
    assert not len(lane)
