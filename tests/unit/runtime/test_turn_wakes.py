"""How many are woken in one turn of the loop."""

from __future__ import annotations

import asyncio

from tallystick.runtime.turn_wakes import TurnWakes


async def test_some_are_woken_in_a_turn_in_their_order_and_none_is_forgotten() -> None:
    wakes, woken, of_turn = TurnWakes(8), list[int](), list[int]()

    async def wait(number: int) -> None:
        await waiters[number]
        woken.append(number)

    loop = asyncio.get_running_loop()
    waiters = [loop.create_future() for _ in range(50)]
    waiting = [asyncio.create_task(wait(number)) for number in range(50)]
    await asyncio.sleep(0)
    for waiter in waiters:
        wakes.wake(waiter)
    while len(woken) < 50:
        before = len(woken)
        await asyncio.sleep(0)
        of_turn.append(len(woken) - before)
    assert woken == list(range(50)) and max(of_turn) == 8
    await asyncio.gather(*waiting)


async def test_one_alone_is_woken_at_once() -> None:
    wakes = TurnWakes(2)
    for _ in range(10):
        waiter = asyncio.get_running_loop().create_future()
        wakes.wake(waiter)
        assert waiter.done()
        await asyncio.sleep(0)


async def test_who_comes_while_others_wait_is_behind_them() -> None:
    wakes = TurnWakes(2)
    waiters = [asyncio.get_running_loop().create_future() for _ in range(5)]
    for waiter in waiters[:4]:
        wakes.wake(waiter)
    await asyncio.sleep(0)
    wakes.wake(waiters[4])
    assert [waiter.done() for waiter in waiters] == [True] * 4 + [False]
    await asyncio.sleep(0)
    assert waiters[4].done()


async def test_those_that_went_take_no_place_of_others() -> None:
    wakes = TurnWakes(2)
    waiters = [asyncio.get_running_loop().create_future() for _ in range(1000)]
    for waiter in waiters:
        wakes.wake(waiter)
        wakes.wake(waiter)  # a second time is none
    for waiter in waiters[2:-2]:
        waiter.cancel()
    await asyncio.sleep(0)
    assert waiters[-2].done() and waiters[-1].done()
