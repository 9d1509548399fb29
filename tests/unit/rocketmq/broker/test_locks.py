"""Queues that one client of a group has for itself."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tallystick.rocketmq.broker import locks
from tallystick.rocketmq.broker.locks import LIVE_S, LockTable, QueueLocksCore, SavedLock
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import MessageQueue

Q0, Q1 = (MessageQueue("T", "b0", number) for number in range(2))


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When those locks were asked for of which it is asked from now on whether they live."""
    looked: list[float] = []
    lives = locks._lives

    def counted(lock: locks._QueueLock, now: float) -> bool:
        looked.append(lock.asked_at)
        return lives(lock, now)

    monkeypatch.setattr(locks, "_lives", counted)
    return looked


def test_a_free_queue_is_taken_and_kept_from_others() -> None:
    held = QueueLocksCore()
    assert held.lock("g", "a", "host", [Q0, Q1], 0.0) == [Q0, Q1]
    assert held.lock("g", "b", "host", [Q1], 1.0) == []
    assert held.lock("g", "a", "host", [Q1], 2.0) == [Q1]
    assert held.lock("other", "b", "host", [Q1], 2.0) == [Q1]


def test_a_lock_ends_when_its_owner_is_silent() -> None:
    held = QueueLocksCore()
    held.lock("g", "a", "host", [Q0, Q1], 0.0)
    held.lock("g", "a", "host", [Q1], 30.0)
    assert held.lock("g", "b", "host", [Q0, Q1], LIVE_S) == []
    assert held.lock("g", "b", "host", [Q0, Q1], LIVE_S + 0.1) == [Q0]
    assert held.in_order("g", LIVE_S)
    assert not held.in_order("g", 1000.0)


def test_whether_a_group_is_in_order_is_seen_by_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    held = QueueLocksCore()
    held.lock("g", "a", "host", [Q0, Q1], 0.0)
    held.lock("g", "a", "host", [Q0], 50.0)
    looked = looked_at(monkeypatch)
    assert held.in_order("g", 100.0) and not held.in_order("g", 200.0)
    assert looked == [50.0, 50.0]
    held.unlock("g", "a", [Q0])
    assert not held.in_order("g", 100.0)


def test_only_its_owner_gives_a_queue_back() -> None:
    held = QueueLocksCore()
    held.lock("g", "a", "host", [Q0], 0.0)
    held.unlock("g", "b", [Q0])
    held.unlock("nobody", "b", [Q0])
    assert held.lock("g", "b", "host", [Q0], 1.0) == []
    held.unlock("g", "a", [Q0, Q1])
    assert held.lock("g", "b", "host", [Q0], 1.0) == [Q0]


def test_ended_locks_do_not_pile_up() -> None:
    held = QueueLocksCore()
    for number in range(100):
        held.lock(f"g{number}", "a", "host", [Q0], number * LIVE_S)
    assert len(held._groups) == len(held) == 2


def test_very_many_ended_locks_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 were one step of 71 ms, for which whoever asked for one queue waited."""
    monkeypatch.setattr(locks, "_MOST_PRUNED", 10)
    held, now = QueueLocksCore(), 2 * LIVE_S
    queues = [MessageQueue("T", "b0", number) for number in range(100)]
    assert held.lock("g", "a", "host", queues, 0.0) == queues
    assert held.lock("g", "a", "host", queues[:3], LIVE_S) == queues[:3]
    looked = looked_at(monkeypatch)
    assert held.lock("other", "b", "host", [Q0], now) == [Q0]
    assert len(held) == 91 and len(looked) <= 11
    steps = held.prune(now)
    next(steps)
    assert len(held) == 91 - locks._STEP_PRUNED
    assert held.lock("g", "b", "host", [queues[50], Q1], now) == [queues[50]], "between two steps; the other lives"
    list(steps)
    assert len(held) == 5 and held.lock("g", "c", "host", [queues[50], queues[60]], now) == [queues[60]]
    list(held.prune(10 * LIVE_S))
    assert (len(held), held._groups, held._places, dict(held._hosts)) == (0, {}, 0, {})


def test_a_queue_that_is_in_the_file_twice_is_locked_once() -> None:
    line = SavedLock("g", Q0, "a", "host")
    held = QueueLocksCore(LockTable([line, replace(line, client_id="b")]), 0.0)
    assert len(held) == 1 and held.lock("g", "a", "host", [Q0], 1.0) == [Q0]
    list(held.prune(2 * LIVE_S))
    assert (len(held), held._groups) == (0, {})


def test_locks_end_in_the_order_in_which_they_were_asked_for() -> None:
    """Whatever happens to them, those that have ended go and no other does."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance, held, now = random.Random(seed), QueueLocksCore(), 0.0
    plain: dict[tuple[str, int], tuple[str, float]] = {}
    for _ in range(2000):
        now += chance.random() * LIVE_S / 20
        group, number, client = chance.choice("gh"), chance.randrange(30), chance.choice("abc")
        owner, asked = plain.get((group, number), (client, now))
        match chance.randrange(4):
            case 0 | 1:
                is_free = owner == client or now - asked > LIVE_S
                assert bool(held.lock(group, client, "host", [MessageQueue("T", "b0", number)], now)) == is_free
                if is_free:
                    plain[group, number] = client, now
            case 2:
                held.unlock(group, client, [MessageQueue("T", "b0", number)])
                if owner == client:
                    plain.pop((group, number), None)
            case _:
                b"".join(held.text(now)) if chance.random() < 0.3 else list(held.prune(now))
                plain = {place: one for place, one in plain.items() if now - one[1] <= LIVE_S}
                kept = {(name, queue.queue_id) for name, of_group in held._groups.items() for queue in of_group}
                assert kept == plain.keys() and len(held) == len(plain)


def test_living_locks_are_not_looked_through_for_each_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = looked_at(monkeypatch)
    held = QueueLocksCore()
    for number in range(100):
        assert held.lock(f"g{number}", "a", "host", [Q0], 0.0) == [Q0]
    assert len(looked) < len(held), "at the one that ends first"


def test_while_all_places_are_taken_one_lock_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 4)
    held = QueueLocksCore()
    queues = [MessageQueue("T", "b0", number) for number in range(5)]
    assert held.lock("g", "a", "host", queues, 10.0) == queues[:3]
    looked = looked_at(monkeypatch)
    for number in range(100):
        assert held.lock(f"g{number}", "b", "host", [Q0], 10.0 + number / 100) == []
    assert len(looked) == 100


def test_who_takes_no_queue_leaves_nothing_and_all_locks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 3)
    held = QueueLocksCore()
    for number in range(10):
        assert held.lock(f"stranger{number}", "c", "host", [], 0.0) == []
        held.unlock(f"stranger{number}", "c", [Q0])
    held.lock("g", "c", "host", [Q0, Q1], 0.0)
    held.unlock("g", "c", [Q0, Q1])
    assert held._groups == {}
    queues = [MessageQueue("T", "b0", number) for number in range(5)]
    assert held.lock("g", "a", "host", queues, 0.0) == queues[:3]
    assert held.lock("g", "a", "host", queues, LIVE_S) == queues[:3]  # kept, and no more given
    assert held.lock("h", "b", "host", queues[:2], LIVE_S) == []
    assert held.lock("h", "b", "host", queues[:2], 3 * LIVE_S) == queues[:2]  # those of the other group have ended


def test_strangers_take_no_place_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 8)
    held = QueueLocksCore()
    queues = [MessageQueue("T", "b0", number) for number in range(20)]
    assert held.lock("invented", "s", "host", queues, 0.0, is_member=False) == queues[:2]
    assert not held.has_room("host", is_member=False) and held.has_room("other host")
    assert held.lock("g", "a", "other host", queues, 1.0) == queues[:6]
    assert held.lock("invented", "s", "host", queues, 1.0, is_member=False) == queues[:2], "kept"
    assert held.lock("other", "s", "host", queues, 2 * LIVE_S, is_member=False) == queues[:2], "the others have ended"


def test_a_host_leaves_a_quarter_and_what_it_does_not_get_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 4)
    held = QueueLocksCore()
    queues = [MessageQueue("T", "b0", number) for number in range(5)]
    assert held.lock("members", "s", "there", queues, 0.0) == queues[:3]
    assert held.left_out == 2
    assert held.lock("members", "t", "there", queues[:1], 0.0) == []
    assert held.left_out == 2, "another has it: that is no want of room"
    assert held.lock("g", "a", "here", queues, 0.0) == queues[:1]
    held.unlock("g", "a", queues)
    assert held.lock("members", "s", "elsewhere", queues[:1], 1.0) == queues[:1], "its owner has moved"
    assert held.lock("members", "t", "there", queues[3:], 1.0) == queues[3:4]
    assert held.lock("g", "a", "there", queues, 2 * LIVE_S) == queues[:3], "the others have ended"
    held.unlock("g", "a", queues)
    assert (len(held), dict(held._hosts)) == (0, {})


def test_a_lock_with_long_names_takes_several_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 of them were a file of 90 MB, read as a whole at the start."""
    monkeypatch.setattr(locks, "MAX_LOCKS", 16)
    held, long = QueueLocksCore(), "x" * 255
    queues = [MessageQueue("T" * 127, "b0", number) for number in range(40)]
    assert held.lock(long, long, "there", queues, 0.0) == held.lock(long, long, "there", queues, 1.0) == queues[:4]
    assert held.lock("g", "a", "here", [Q0, Q1], 1.0) == [Q0, Q1] and len(held) == 6
    again = reopened(held, 1.0, 1.0)
    assert dict(again._hosts) == dict(held._hosts) == {"there": 12, "here": 2}
    assert len(text_of(held, 1.0)) < 16 * locks.PLACE_BYTES
    held.unlock(long, long, queues)
    held.unlock("g", "a", [Q0, Q1])
    assert (len(held), dict(held._hosts), held._places) == (0, {}, 0)


def text_of(held: QueueLocksCore, now: float) -> bytes:
    return b"".join(held.text(now))


def reopened(held: QueueLocksCore, at: float, now: float) -> QueueLocksCore:
    return QueueLocksCore(dialect.read_as(text_of(held, at), LockTable, bounded=False), now)


def test_owners_outlive_a_restart_and_each_new_one_is_said() -> None:
    changes: list[None] = []
    held = QueueLocksCore(changed=lambda: changes.append(None))
    held.lock("g", "a", "host", [Q0, Q1], 0.0)
    held.lock("g", "a", "host", [Q0, Q1], 20.0)
    held.lock("g", "b", "host", [Q0], 20.0)
    assert (len(changes), held.dirty) == (1, False), "a lock that is renewed has the same owner"
    held.lock("g", "a", "host", [Q0], 70.0)
    soon, again = reopened(held, 70.0, 5.0), reopened(held, 100.0, 5.0)
    assert len(again) == 1, "the other one has ended"
    assert again.lock("g", "b", "host", [Q0, Q1], 5.0 + LIVE_S) == [Q1]
    assert again.lock("g", "a", "host", [Q0], 5.0 + LIVE_S) == [Q0]
    assert soon.lock("g", "b", "host", [Q0, Q1], 5.1 + LIVE_S) == [Q0, Q1]
    held.unlock("g", "a", [Q0])
    assert held.dirty
    assert len(reopened(held, 100.0, 0.0)) == 0
    assert not held.dirty
    held.lock("g", "b", "host", [Q0], 500.0)
    assert len(changes) == 2, "what has ended goes to another owner"
    held.lock("g", "b", "host", [Q0], 600.0)
    assert len(changes) == 3, "what has ended may be in no file"


def test_a_lock_knows_by_which_change_its_owner_has_it() -> None:
    held = QueueLocksCore()
    held.lock("g", "a", "host", [Q0], 0.0)
    held.lock("h", "b", "host", [Q0], 0.0)
    held.lock("g", "a", "host", [Q0], 1.0)
    assert [held.newest("g", client, [Q0, Q1]) for client in "ab"] == [1, 0]
    held.lock("g", "a", "host", [Q0, Q1], 2.0)
    assert (held.newest("g", "a", [Q0]), held.newest("g", "a", [Q0, Q1]), held.changes) == (1, 3, 3)
    held.lock("g", "a", "host", [Q0], 2.1 + LIVE_S)
    assert held.newest("g", "a", [Q0]) == held.changes == 4, "it had ended: it may be in no file"


def test_a_lock_that_ended_is_a_new_one_where_very_many_ended_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of them go when one is asked for."""
    monkeypatch.setattr(locks, "_MOST_PRUNED", 5)
    held = QueueLocksCore()
    for number in range(20):
        held.lock(f"g{number}", "a", "host", [Q0], 0.0)
    assert held.lock("g19", "a", "host", [Q0], 1.0 + LIVE_S) == [Q0]
    assert held.newest("g19", "a", [Q0]) == held.changes == 21, "it may be in no file"


def test_many_locks_are_written_in_pieces() -> None:
    held = QueueLocksCore()
    queues = [MessageQueue("T", "b0", number) for number in range(1000)]
    held.lock("g", "a", "host", queues, 0.0)
    assert len(list(held.text(0.0))) > 10
    assert reopened(held, 0.0, 0.0).lock("g", "a", "host", queues, 1.0) == queues
    assert len(reopened(QueueLocksCore(), 0.0, 0.0)) == 0


def test_who_does_not_know_the_owners_gives_no_lock_for_as_long_as_they_may_live() -> None:
    held = QueueLocksCore(None, 7.0, quiet_s=LIVE_S)
    assert held.lock("g", "a", "host", [Q0], 6.9 + LIVE_S) == []
    assert held.lock("g", "a", "host", [Q0], 7.0 + LIVE_S) == [Q0]


def test_locks_of_many_groups_are_few_pieces_of_the_file() -> None:
    """24,000 groups were as many, 64 for each turn of the worker: who wanted a lock waited for 4 s."""
    held = QueueLocksCore()
    for number in range(10_000):
        held.lock(f"g{number}", "a", "host", [Q0], 0.0)
    pieces = list(held.text(1.0))
    assert len(pieces) <= 10_000 // locks._LINES + 2
    assert len(dialect.read_as(b"".join(pieces), LockTable).locks) == len(held) == 10_000


def test_locks_that_ended_go_when_the_file_is_written_and_in_steps() -> None:
    """They were gone through for ever, all in one step."""
    held = QueueLocksCore()
    for number in range(10_000):
        held.lock(f"g{number}", "a", "host", [Q0], 0.0)
    held.lock("g5000", "a", "host", [Q1], LIVE_S)
    text = held.text(LIVE_S + 1)
    assert next(text) == b"" and 8_000 < len(held) < 10_000
    assert held.lock("g9999", "b", "host", [Q0], LIVE_S + 1) == [Q0], "another owner, before its turn"
    written = dialect.read_as(b"".join(text), LockTable).locks
    assert [(lock.group, lock.queue, lock.client_id) for lock in written] == [("g5000", Q1, "a"), ("g9999", Q0, "b")]
    assert (len(held), set(held._groups)) == (2, {"g5000", "g9999"})


def test_a_queue_that_another_took_while_the_file_is_written_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock had ended when the text came to its group."""
    monkeypatch.setattr(locks, "_LOOKED_AT", 1)
    held, now = QueueLocksCore(), LIVE_S + 1
    held.lock("g", "a", "host", [Q0, Q1], 0.0)
    text = held.text(now)
    next(text)
    assert held.lock("g", "b", "host", [Q1], now) == [Q1]
    b"".join(text)
    assert held.lock("g", "c", "host", [Q0, Q1], now) == [Q0]
    assert len(held) == 2


def test_what_is_given_back_while_the_file_is_written_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_LOOKED_AT", 1)
    held = QueueLocksCore()
    held.lock("g", "a", "host", [Q0, Q1], 0.0)
    text = held.text(1.0)
    next(text)
    held.unlock("g", "a", [Q0])
    b"".join(text)
    assert held.dirty
