from __future__ import annotations

import asyncio

import pytest

from tallystick.runtime.handshake_turns import HandshakeTurns


async def turns_until(done: list[str], name: str) -> int:
    """Return how many turns of the loop it takes until a step of that name is done."""
    turns = 0
    while name not in done:
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_a_host_with_many_handshakes_lets_that_of_another_host_be_next() -> None:
    done: list[str] = []
    turns = HandshakeTurns(4)
    for number in range(512):
        turns.run(number, "a stranger", lambda: done.append("stranger"))
    assert len(done) == 4, "at once, as far as this turn has steps"
    for step in ("hello", "finished"):
        turns.run("peer", "a friend", lambda step=step: done.append(step))  # type: ignore[misc]
        assert await turns_until(done, step) == 1
    assert len(done) < 20
    while len(done) < 514:
        before = len(done)
        await asyncio.sleep(0)
        assert len(done) <= before + 4


async def test_a_step_may_bring_another_and_its_peers_own_keep_their_order() -> None:
    done: list[str] = []
    turns = HandshakeTurns(100)

    def first() -> None:
        turns.run("peer", "host", lambda: done.append("second"))
        done.append("first")

    turns.run("peer", "host", first)
    assert done == ["first", "second"]


async def test_a_step_that_fails_keeps_no_other_from_being_done() -> None:
    done: list[str] = []
    turns = HandshakeTurns(1)
    with pytest.raises(ZeroDivisionError):
        turns.run("peer", "host", lambda: done.append(str(1 // 0)))
    turns.run("another", "host", lambda: done.append("another"))
    assert await turns_until(done, "another") <= 2


async def test_what_is_not_done_when_it_closes_is_not_done_any_more() -> None:
    done: list[str] = []
    turns = HandshakeTurns(1)
    for name in ("a", "b"):
        turns.run(name, "host", lambda name=name: done.append(name))  # type: ignore[misc]
    turns.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["a"]
