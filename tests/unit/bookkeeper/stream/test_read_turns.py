from __future__ import annotations

import asyncio

from tallystick.bookkeeper.stream.read_turns import ReadTurns


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_turns_come_in_the_order_of_the_calls() -> None:
    turns, order = ReadTurns(), []

    async def read(name: str, *, wait: bool) -> None:
        assert await turns.take(wait=wait)
        order.append(name)
        await asyncio.sleep(1)
        turns.give_back()

    await asyncio.gather(read("a", wait=True), read("b", wait=False), read("c", wait=True))
    assert order == ["a", "b", "c"]
    assert await turns.take(wait=False)


async def test_who_does_not_wait_is_sent_away_as_soon_as_the_holder_waits() -> None:
    turns = ReadTurns()
    assert await turns.take(wait=True)
    first, second = (asyncio.create_task(turns.take(wait=wait)) for wait in (False, True))
    await settled()
    assert not first.done()
    turns.waits()
    assert await first is False and await turns.take(wait=False) is False
    turns.goes_on()
    third = asyncio.create_task(turns.take(wait=False))
    await settled()
    assert not second.done() and not third.done()
    turns.give_back()
    assert await second and not third.done()
    turns.give_back()
    assert await third


async def test_who_ends_while_it_waits_sends_nobody_away_any_more() -> None:
    """It was cancelled, or had waited for long enough: the next holder reads what is there."""
    turns = ReadTurns()
    assert await turns.take(wait=True)
    turns.waits()
    turns.give_back()
    assert await turns.take(wait=False)
    behind = asyncio.create_task(turns.take(wait=False))
    await settled()
    assert not behind.done()
    turns.give_back()
    assert await behind


async def test_a_turn_that_nobody_waits_for_any_more_goes_to_the_next() -> None:
    turns = ReadTurns()
    assert await turns.take(wait=True)
    cancelled, late, other = (asyncio.create_task(turns.take(wait=True)) for _ in range(3))
    await settled()
    cancelled.cancel()
    await settled()
    turns.give_back()
    late.cancel()  # it has the turn by now, and does not know yet
    await settled()
    assert late.cancelled() and await other
    turns.give_back()
    assert await turns.take(wait=False)
