"""Connections that end together are forgotten over many turns of the loop."""

from __future__ import annotations

import asyncio

from tallystick.runtime.ended import EndedConnections


async def test_those_that_end_in_one_turn_are_forgotten_in_their_order_over_many() -> None:
    forgotten: list[int] = []
    ended = EndedConnections(forgotten.append, 4)
    for number in range(7):
        ended.add(number)
    assert forgotten == [0, 1], "for each alone there is a step in which nothing is left"
    await asyncio.sleep(0)
    assert forgotten == [0, 1, 2, 3, 4, 5]
    await asyncio.sleep(0)
    assert forgotten == [0, 1, 2, 3, 4, 5, 6]


async def test_the_first_makes_way_for_who_comes() -> None:
    forgotten: list[str] = []
    ended = EndedConnections(forgotten.append, 0)
    ended.make_way()
    ended.add("a")
    ended.add("b")
    ended.make_way()
    assert forgotten == ["a"]


async def test_a_fault_with_one_keeps_no_other() -> None:
    forgotten: list[str] = []

    def forget(name: str) -> None:
        if name == "b":
            raise ValueError(name)
        forgotten.append(name)

    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context.get("exception")))
    ended = EndedConnections(forget, 2)
    for name in "abc":
        ended.add(name)
    for _ in range(4):
        await asyncio.sleep(0)
    ended.add("d")
    await asyncio.sleep(0)
    assert (forgotten, [repr(fault) for fault in faults]) == (["a", "c", "d"], ["ValueError('b')"])


async def test_a_server_that_stops_forgets_all() -> None:
    forgotten: list[str] = []
    ended = EndedConnections(forgotten.append, 0)
    for name in "abc":
        ended.add(name)
    ended.forget_all()
    assert forgotten == ["a", "b", "c"]
