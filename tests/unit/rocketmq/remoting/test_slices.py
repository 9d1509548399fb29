"""Long work in parts: others have their turns, one text is made after the other, and an error arrives."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from support.waiting import until
from tallystick.errors import BrokerError
from tallystick.rocketmq.remoting import slices
from tallystick.rocketmq.remoting.slices import Slices, at_once, in_slices
from tallystick.runtime.clock import SystemClock


def parts(count: int, name: str = "", log: list[str] | None = None) -> Iterator[str]:
    for number in range(count):
        if log is not None:
            log.append(f"{name}{number}")
        yield f"{name}{number}"


def failing() -> Iterator[str]:
    yield "first"
    raise ValueError("the second")


async def test_others_have_a_turn_after_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    turn()
    assert await in_slices(parts(20), SystemClock()) == [str(number) for number in range(20)]
    assert turns >= 20
    before = turns
    monkeypatch.setattr(slices, "SLICE_S", 60.0)
    await in_slices(parts(20), SystemClock())
    assert turns == before, "what is short costs no turn"


async def test_one_text_is_made_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    log: list[str] = []
    made: list[list[str] | Exception] = []
    works = Slices(SystemClock())
    works.make(parts(3, "a", log), made.append)
    works.make(failing(), made.append)
    works.make(parts(3, "b", log), made.append)
    await until(lambda: len(made) == 3)
    assert log == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert (made[0], str(made[1]), made[2]) == (log[:3], "the second", log[3:])
    works.make(parts(1000, "c", log), made.append)
    await until(lambda: "c0" in log, pause=0)
    await works.close()
    assert (len(made), "c999" in log) == (3, False)


def test_where_nobody_waits_it_is_made_at_once() -> None:
    made: list[list[str] | Exception] = []
    at_once(parts(2), made.append)
    at_once(failing(), made.append)
    assert (made[0], str(made[1])) == (["0", "1"], "the second")


async def test_only_so_many_texts_wait_to_be_made() -> None:
    made = Slices(SystemClock(), most=2)
    outcomes: list[list[str] | Exception] = []
    for name in ("a", "b", "c"):
        made.make(parts(2, name), outcomes.append)
    (refused,) = outcomes
    assert isinstance(refused, BrokerError)
    assert refused.response_code == 2
    await until(lambda: len(outcomes) == 3)
    made.make(parts(1), outcomes.append)
    await until(lambda: len(outcomes) == 4)
    assert outcomes[1:] == [["a0", "a1"], ["b0", "b1"], ["0"]]
    await made.close()


async def test_hosts_have_turns_and_a_few_of_them_keep_no_other_out() -> None:
    """Two hosts had all places, and an operator's tool, or a slave of the original, got none."""
    works, log = Slices(SystemClock(), most=6), list[str]()
    outcomes: dict[str, list[str] | Exception] = {}

    def ask(name: str, host: str) -> None:
        works.make(parts(1, name, log), lambda outcome: outcomes.__setitem__(name, outcome), host)

    for name in ("a", "b", "c", "d"):
        ask(name, "greedy")
    for name in ("e", "f"):
        ask(name, "another")
    ask("g", "greedy")
    assert isinstance(outcomes["g"], BrokerError), "all places are taken, and most of them are this host's"
    ask("guest", "third")
    assert "b" not in outcomes, "not within the call of another one"
    await until(lambda: len(outcomes) == 8)
    refused = {name for name, outcome in outcomes.items() if isinstance(outcome, BrokerError)}
    assert refused == {"b", "g"}
    assert log == ["a0", "c0", "e0", "guest0", "d0", "f0"]
    await works.close()


async def test_a_receiver_that_raises_ends_its_own_work_alone() -> None:
    works, outcomes = Slices(SystemClock()), list[list[str] | Exception]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

    def bug(made: object) -> None:
        raise ZeroDivisionError("a bug")

    works.make(parts(1, "a"), bug)
    works.make(parts(1, "b"), outcomes.append)
    await until(lambda: outcomes == [["b0"]])
    await works.close()


class Plenty:
    """What a part has in memory."""


def failing_with(plenty: Plenty) -> Iterator[str]:
    yield "first"
    raise ValueError(f"the second of {type(plenty)}")


@pytest.mark.parametrize("later", [True, False])
async def test_what_failing_parts_have_is_freed_when_the_error_was_told(later: bool) -> None:
    works, errors, plenty = Slices(SystemClock()), list[str](), Plenty()
    is_there = weakref.ref(plenty)
    gc.disable()  # as good as: after a long collection old garbage in cycles is looked for once in an hour
    try:
        (works.make if later else at_once)(failing_with(plenty), lambda made: errors.append(str(made)))
        del plenty
        await until(lambda: bool(errors))
        await until(lambda: is_there() is None)
    finally:
        gc.enable()


async def test_the_places_of_what_was_made_are_free_again() -> None:
    """One is made and another one waits, however many there were before."""
    works, outcomes = Slices(SystemClock(), most=3), list[list[str] | Exception]()
    for _ in range(20):
        works.make(parts(1, "a"), outcomes.append, "first")
        works.make(parts(1, "b"), outcomes.append, "second")
        await until(lambda: len(outcomes) == 2)
        assert outcomes == [["a0"], ["b0"]]
        outcomes.clear()
    await works.close()


async def test_the_only_work_of_a_host_is_refused_and_the_others_are_made() -> None:
    works, outcomes = Slices(SystemClock(), most=3), dict[str, list[str] | Exception]()

    def ask(name: str) -> None:
        def done(outcome: list[str] | Exception) -> None:
            outcomes[name] = outcome
            if name == "b":
                ask("e")

        works.make(parts(1, name), done, f"host of {name}")

    for name in ("a", "b", "c", "d"):
        ask(name)
    assert isinstance(outcomes["d"], BrokerError)
    await until(lambda: len(outcomes) == 5)
    assert [outcomes[name] for name in ("a", "b", "c", "e")] == [["a0"], ["b0"], ["c0"], ["e0"]]
    await works.close()
