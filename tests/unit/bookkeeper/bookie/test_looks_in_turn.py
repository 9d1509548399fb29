"""Nobody's look waits for very many others, and no turn of the loop is long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from support.looks import looks_at
from support.waiting import until
from support.watched import METADATA, Watched
from tallystick.bookkeeper.bookie.look import BATCH_LEDGERS, LEAST_LEDGERS, LookCore, Verdict
from tallystick.bookkeeper.bookie.looks import ANSWERING_S
from tallystick.bookkeeper.bookie.turns import TURN_S
from tallystick.bookkeeper.metadata.driver import Moment

HERE = Moment("ours", 1)


async def here() -> Moment:
    return HERE


def test_who_waits_for_very_many_keeps_nobody_else_waiting() -> None:
    core = LookCore("ours", lambda ledger: None, lambda ledger: ())
    for ledger in range(10 * BATCH_LEDGERS):
        core.requested(ledger, "stranger")
    core.requested(7_000_000, "writer", "h")
    core.requested(7_000_001, "another", "h")
    core.requested(0, "writer", "h")
    batch = core.next_batch()
    assert len(batch) == BATCH_LEDGERS
    assert batch[:4] == (0, 7_000_000, 1, 7_000_001), "hosts have their turns, and connections of a host"


def test_what_of_a_batch_is_put_off_comes_first_and_the_next_are_smaller_for_a_while() -> None:
    core = LookCore("ours", lambda ledger: None, lambda ledger: ())
    for ledger in range(3 * BATCH_LEDGERS):
        core.requested(ledger, "stranger")
    batch = core.next_batch()
    core.read(HERE, HERE, {})
    assert not core.another_waits(batch[5:])
    core.requested(7_000_000, "writer", "h")
    assert core.another_waits(batch[5:])
    core.answered(5, batch[5:])
    batch = core.next_batch()
    assert batch == (5, 7_000_000, *range(6, 4 + LEAST_LEDGERS))
    core.read(HERE, HERE, {})
    core.answered(len(batch), ())
    assert [len(one) for one in batches(core)][:4] == [2 * LEAST_LEDGERS, 4 * LEAST_LEDGERS, 8 * LEAST_LEDGERS, 512]


def test_a_host_whose_own_were_answered_is_another_one_again() -> None:
    core = LookCore("ours", lambda ledger: None, lambda ledger: ())
    for ledger, host in enumerate("ab"):
        core.requested(ledger, host, host)
    assert core.next_batch() == (0, 1)
    core.read(HERE, HERE, {})
    core.requested(2, "a", "a")
    assert core.another_waits((1,)) and not core.another_waits((0,))


def test_who_was_put_off_comes_before_who_was_settled_and_waits_again() -> None:
    """Else what took all the time of the last batch would take that of the next one, too."""
    core = LookCore("ours", lambda ledger: None, lambda ledger: ())
    for ledger, host in enumerate("abc"):
        core.requested(ledger, host, host)
    batch = core.next_batch()
    core.read(HERE, HERE, {})
    core.put_off(0)
    core.answered(1, batch[1:])
    assert core.next_batch() == (1, 2, 0)


def test_a_batch_has_twice_what_was_answered_in_time() -> None:
    core = LookCore("ours", lambda ledger: None, lambda ledger: ())
    for ledger in range(2 * BATCH_LEDGERS):
        core.requested(ledger, "stranger")
    batch = core.next_batch()
    core.read(HERE, HERE, {})
    core.answered(2 * LEAST_LEDGERS, batch[2 * LEAST_LEDGERS :])
    assert len(core.next_batch()) == 4 * LEAST_LEDGERS


def batches(core: LookCore) -> Iterator[tuple[int, ...]]:
    while batch := core.next_batch():
        yield batch
        core.read(HERE, HERE, {})
        core.answered(len(batch), ())


@pytest.mark.parametrize("waits_for_one", [False, True])
async def test_others_have_turns_while_very_much_is_decided(
    driver: Watched, monkeypatch: pytest.MonkeyPatch, waits_for_one: bool
) -> None:
    """What a ledger costs depends on the requests that wait for it: 20 peers with 20,000 adds for one were 400 ms."""
    answered, turns = list[Verdict](), list[int]()
    looks = looks_at(driver, [])
    loop = asyncio.get_running_loop()
    began, step = loop.time(), TURN_S / 4 + 1e-6  # more than a quarter, however the sums are rounded
    monkeypatch.setattr(loop, "time", lambda: began + len(answered) * step)

    def turn() -> None:
        turns.append(len(answered))
        loop.call_soon(turn)

    for ledger in range(BATCH_LEDGERS):
        looks.hold(7 if waits_for_one else ledger, 1, answered.append)
    turn()
    await until(lambda: len(answered) == BATCH_LEDGERS, pause=0)
    assert max(after - before for before, after in pairwise(turns)) == 4
    await looks.close()


async def test_what_comes_while_a_ledgers_requests_go_on_goes_on_behind_them(
    driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, reserved_sizes = list[int](), list[int]()
    looks, loop = looks_at(driver, []), asyncio.get_running_loop()
    looks._reserve = reserved_sizes.append
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began + len(answered) * TURN_S)  # each ends its turn

    def hold(number: int) -> None:
        def go_on(_: Verdict) -> None:
            answered.append(number)
            if number == 0:
                loop.call_soon(hold, 8)

        looks.hold(7, 1, go_on)

    for number in range(8):
        hold(number)
    for _ in range(100):  # turns of the loop, whose time stands still
        await asyncio.sleep(0)
    assert answered == [*range(9)]
    assert sum(reserved_sizes) == 0
    await looks.close()


async def test_another_host_waits_for_no_more_than_a_part_of_what_waits_for_a_look(
    driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 requests for each of 512 ledgers were half a minute, in which nobody else's were looked at."""
    answered, writers = list[Verdict](), list[int]()

    monkeypatch.setattr(driver, "sync", here)
    looks = looks_at(driver, [])
    loop = asyncio.get_running_loop()
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began + len(answered) * TURN_S)

    def go_on(said: Verdict) -> None:
        answered.append(said)
        if len(answered) == 1:
            looks.hold(7_000_000, 1, lambda _: writers.append(len(answered)), who="writer", host="h")

    for ledger in range(BATCH_LEDGERS):
        looks.hold(ledger, 1, go_on, who="stranger")
    await until(lambda: len(answered) == BATCH_LEDGERS, pause=0)
    assert writers[0] <= ANSWERING_S / TURN_S + 2
    assert sorted({ledger for batch in driver.looked_up for ledger in batch}) == [*range(BATCH_LEDGERS), 7_000_000]
    await looks.close()


@pytest.mark.parametrize("came_before", [False, True])
async def test_other_ledgers_wait_for_no_more_than_a_part_of_what_one_has(
    driver: Watched, monkeypatch: pytest.MonkeyPatch, came_before: bool
) -> None:
    """While a peer sent adds of one invented ledger without end, no other ledger was judged, and no recovery began."""
    answered, writers, most = list[Verdict](), list[int](), 3 * BATCH_LEDGERS
    monkeypatch.setattr(driver, "sync", here)
    looks = looks_at(driver, [])
    loop = asyncio.get_running_loop()
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began + len(answered) * TURN_S)

    def go_on(said: Verdict) -> None:
        answered.append(said)
        if not came_before and len(answered) + BATCH_LEDGERS <= most:
            looks.hold(7, 1, go_on, who="stranger", host="s")

    for _ in range(most if came_before else BATCH_LEDGERS):
        looks.hold(7, 1, go_on, who="stranger", host="s")
    for ledger, host in ((8, "h"), (9, "s")):
        looks.hold(ledger, 1, lambda _: writers.append(len(answered)), who="writer", host=host)
    await until(lambda: len(answered) == most, pause=0)
    assert max(writers) <= ANSWERING_S / TURN_S + 2
    assert looks._requests == {}
    await looks.close()


async def test_what_comes_while_a_verdict_is_given_is_looked_at_again(
    driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ledger may be made meanwhile: by the verdict of before its writer was fenced."""
    answered, later = list[Verdict](), list[Verdict]()
    monkeypatch.setattr(driver, "sync", here)
    looks = looks_at(driver, [])
    loop = asyncio.get_running_loop()
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began + len(answered) * TURN_S)

    for _ in range(5):
        looks.hold(7, 1, answered.append)
    await until(lambda: answered, pause=0)
    await driver.create_ledger(METADATA, 7)
    looks.hold(7, 1, later.append)
    await until(lambda: later, pause=0)
    assert (answered, later) == ([Verdict.GONE] * 5, [Verdict.ADMIT])
    assert driver.looked_up == [(7,), (7,)]
    await looks.close()
