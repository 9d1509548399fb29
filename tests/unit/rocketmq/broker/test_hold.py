"""Pulls that wait: woken by the first message that they want, or by their own deadline."""

from __future__ import annotations

import gc
import random
import weakref

import pytest

from tallystick.rocketmq.broker import hold
from tallystick.rocketmq.broker.hold import HeldPull, HoldCore


def held(
    name: str, offset: int = 5, deadline: float = 10.0, tags: set[int] | None = None, link: str = "l"
) -> HeldPull[str]:
    return HeldPull("T", 0, offset, None if tags is None else frozenset(tags), deadline, link, name)


def core(*pulls: HeldPull[str]) -> HoldCore[str]:
    made: HoldCore[str] = HoldCore()
    for pull in pulls:
        assert made.hold(pull, 0.0)
    return made


def test_a_message_at_the_offset_wakes_all_who_wait_for_it() -> None:
    waiting = core(held("a"), held("b", offset=6), held("c", offset=7))
    assert list(waiting.arrived("T", 0, 5, [0])) == []
    assert list(waiting.arrived("T", 1, 9, [0])) == []
    assert list(waiting.arrived("T", 0, 7, [0, 0])) == ["a", "b"]
    assert list(waiting.arrived("T", 0, 7, [0])) == []
    assert len(waiting) == 1


def test_tags_that_are_not_wanted_wake_nobody() -> None:
    waiting = core(held("a", tags={1, 2}), held("b"))
    assert list(waiting.arrived("T", 0, 6, [3])) == ["b"]
    assert list(waiting.arrived("T", 0, 8, [3, 2])) == ["a"]


def test_time_wakes_each_at_its_own_deadline() -> None:
    waiting = core(held("late", deadline=9.0), held("soon", deadline=3.0))
    assert waiting.wake_at() == 3.0
    assert waiting.tick(2.9) == []
    assert waiting.tick(3.0) == ["soon"]
    assert waiting.tick(100.0) == ["late"]
    assert waiting.wake_at() is None


def test_a_topic_that_is_gone_wakes_all_who_wait_there() -> None:
    waiting = core(held("a"), held("b"), HeldPull("U", 0, 5, None, 10.0, "l", "other"))
    assert list(waiting.topics_deleted({"T", "U"})) == []
    assert list(waiting.topics_deleted({"U"})) == ["a", "b"]
    assert list(waiting.topics_deleted({"U"})) == []
    assert len(waiting) == 1


def test_a_topic_that_is_gone_is_looked_for_by_topics() -> None:
    """200,000 pulls of as many queues were 41 ms at each deletion of a topic."""
    waiting, asked = core(), list[str]()

    class Topics(dict[str, None]):
        def __contains__(self, topic: object) -> bool:
            asked.append(str(topic))
            return super().__contains__(topic)

    for queue_id in range(100):
        waiting.hold(HeldPull("T", queue_id, 5, None, 10.0, "l", f"T{queue_id}"), 0.0)
        waiting.hold(HeldPull("U", queue_id, 5, None, 10.0, "l", f"U{queue_id}"), 0.0)
    assert list(waiting.topics_deleted(Topics({"T": None, "U": None}))) == [] and asked == ["T", "U"]
    assert len(list(waiting.topics_deleted(Topics({"U": None})))) == len(waiting) == 100
    list(waiting.closed("l"))
    assert list(waiting.topics_deleted(Topics())) == [] and len(asked) == 4


def test_a_closed_link_waits_no_more() -> None:
    waiting = core(held("a", link="gone"), held("b", link="here"))
    list(waiting.closed("gone"))
    list(waiting.closed("never seen"))
    assert list(waiting.arrived("T", 0, 6, [0])) == ["b"]


@pytest.mark.parametrize("bound", ["MAX_HELD", "MAX_LINK_HELD"])
def test_more_than_may_be_held_wait_briefly_and_are_woken_all_the_same(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IdentityCallback at once they came again at once: one consumer without messages made 20,000 pulls a second."""
    monkeypatch.setattr(hold, bound, 2)
    waiting = core(held("a"), held("b"))
    assert not waiting.hold(held("long", deadline=100.0), 1.0)
    assert not waiting.hold(held("soon", deadline=2.0), 1.0)
    assert not waiting.hold(held("woken", offset=1), 1.0)
    assert waiting.hold(held("other", link="another"), 1.0) == (bound == "MAX_LINK_HELD")
    assert list(waiting.arrived("T", 0, 2, [0])) == ["woken"]
    assert waiting.tick(1.0) == []
    assert waiting.tick(2.0) == ["soon"]
    assert waiting.tick(1.0 + hold.BRIEF_S)[:1] == ["long"]
    list(waiting.closed("l"))
    list(waiting.closed("another"))
    assert waiting.hold(held("c"), 20.0)


def test_each_message_looks_at_a_bounded_number_of_pulls_and_so_does_each_look_at_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hold, "MAX_QUEUE_HELD", 2)
    monkeypatch.setattr(hold, "MAX_OVER", 2)
    waiting = core(held("a", tags={9}), held("b"))
    assert not waiting.hold(held("c", link="other"), 0.0) and len(waiting) == 3
    assert list(waiting.arrived("T", 0, 6, [1])) == ["b"]
    assert waiting.hold(held("d"), 0.0)
    assert waiting.tick(hold.BRIEF_S) == ["c"]
    assert list(waiting.arrived("T", 0, 6, [1])) == ["d"]
    for name in "efg":
        waiting.hold(held(name, deadline=4.0), 0.0)
    assert waiting.tick(5.0) == ["e", "f"] and waiting.wake_at() == 4.0
    assert waiting.tick(5.0) == ["g"]


def test_deadlines_of_woken_pulls_do_not_pile_up() -> None:
    waiting = core()
    for number in range(10_000):
        waiting.hold(held(str(number), deadline=1e6), 0.0)
        list(waiting.arrived("T", 0, 6, [0]))
    assert places(waiting) < 2000


def places(waiting: HoldCore[str]) -> int:
    """That the heaps of deadlines have."""
    return len(waiting._deadlines) + len(waiting._old_deadlines)


def test_no_event_pays_for_the_deadlines_of_a_crowd_that_went() -> None:
    """200,000 places were one step of 0.2 s for whoever held the next pull, and kept what they had until then."""
    waiting = core()
    for number in range(5000):
        waiting.hold(held(str(number), link="crowd", deadline=1e6), 0.0)
    list(waiting.closed("crowd"))
    assert places(waiting) <= 2 * hold._STALE
    for number in range(5000):
        waiting.hold(held(f"early {number}", link="crowd", deadline=1e5 + number % 7), 0.0)
    waiting.hold(held("b", deadline=9.0), 0.0)
    forgotten, before = waiting.closed("crowd"), places(waiting)
    for _ in forgotten:
        assert before - places(waiting) <= hold.STEP_FORGOTTEN * hold._STEP_MOVED
        before = places(waiting)
        assert waiting.wake_at() == 9.0 and waiting.tick(8.0) == []
    assert waiting.tick(9.0) == ["b"] and len(waiting) == 0


class Kept:
    """What is to be seen going."""


@pytest.mark.parametrize("how", ["arrived", "gone", "closed", "tick"])
def test_what_a_pull_kept_goes_with_its_end(how: str) -> None:
    """Its deadline may be ten minutes away."""
    waiting: HoldCore[Kept] = HoldCore()
    pull, link = Kept(), Kept()
    waiting.hold(HeldPull("T", 0, 5, None, 600.0, "other", Kept()), 0.0)
    waiting.hold(HeldPull("T", 0, 9, None, 500.0, link, pull), 0.0)
    going = weakref.ref(pull), weakref.ref(link)
    match how:
        case "arrived":
            list(waiting.arrived("T", 0, 10, [0]))
        case "gone":
            list(waiting.topics_deleted({"U"}))
        case "closed":
            list(waiting.closed(link))
        case _:
            assert waiting.tick(500.0) == [pull]
    del pull, link
    gc.collect()
    assert [one() for one in going] == [None, None] and len(waiting) == (1 if how in ("closed", "tick") else 0)


def test_against_a_list_of_pulls() -> None:
    """Any order of events ends every pull once, for a reason that it has."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    waiting, plain, now = core(), dict[str, HeldPull[str]](), 0.0
    for number in range(3000):
        now += chance.random()
        match chance.randrange(4):
            case 0 | 1:
                tags = {chance.randrange(3)} if chance.random() < 0.5 else None
                pull = held(str(number), chance.randrange(20), now + 5 * chance.random(), tags, chance.choice("abc"))
                waiting.hold(pull, now)
                plain[str(number)] = pull
            case 2:
                end, tag = chance.randrange(20), chance.randrange(3)
                woken = {
                    name
                    for name, pull in plain.items()
                    if pull.offset < end and (pull.tags is None or tag in pull.tags)
                }
                assert set(waiting.arrived("T", 0, end, [tag])) - {None} == woken
                plain = {name: pull for name, pull in plain.items() if name not in woken}
            case _:
                over = {name for name, pull in plain.items() if pull.deadline <= now}
                assert set(waiting.tick(now)) == over
                plain = {name: pull for name, pull in plain.items() if name not in over}
                if chance.random() < 0.1:
                    plain = {name: pull for name, pull in plain.items() if pull.link != "a"}
                    list(waiting.closed("a"))
        assert len(waiting) == len(plain)
        assert not plain or waiting.wake_at() is not None


def test_what_is_woken_or_forgotten_comes_one_by_one() -> None:
    """12 queues of 10,000 pulls were one turn of the loop of 0.8 s."""
    waiting = core()
    for number in range(300):
        waiting.hold(held(f"a{number}", link="a", tags={1} if number % 3 else None), 0.0)
    woken = waiting.arrived("T", 0, 6, [2])
    assert (next(woken), len(waiting)) == ("a0", 299)
    forgotten = waiting.closed("a")
    next(forgotten)
    assert len(waiting) == 299 - hold.STEP_FORGOTTEN
    list(forgotten)
    assert len(waiting) == 0 and not [name for name in woken if name is not None]


def test_who_waits_at_a_topic_that_was_made_anew_is_not_meant_by_its_end() -> None:
    waiting = core(held("old"), held("older"))
    gone = waiting.topics_deleted({"U"})
    assert waiting.hold(held("new"), 0.0)
    assert set(gone) == {"old", "older"} and len(waiting) == 1
    assert list(waiting.arrived("T", 0, 6, [0])) == ["new"]


def test_what_ends_between_two_steps_ends_once() -> None:
    waiting = core(held("a", link="closed"), held("b"))
    gone = waiting.topics_deleted({"U"})
    list(waiting.closed("closed"))
    assert list(gone) == ["b"] and len(waiting) == 0
    for number in range(2 * hold.STEP_FORGOTTEN):
        waiting.hold(held(str(number)), 0.0)
    forgotten = waiting.closed("l")
    next(forgotten)
    assert len(list(waiting.arrived("T", 0, 6, [0]))) == hold.STEP_FORGOTTEN
    list(forgotten)
    assert len(waiting) == 0
