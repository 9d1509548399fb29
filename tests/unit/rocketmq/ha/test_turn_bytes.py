from __future__ import annotations

import asyncio

from tallystick.rocketmq.ha.turn_bytes import TurnBytes


class Link:
    """One that has some bytes to send."""

    def __init__(self, turn_bytes: TurnBytes, to_send: int, sent: list[str], name: str) -> None:
        self._turn_bytes, self.to_send, self._sent, self._name = turn_bytes, to_send, sent, name

    def pump(self) -> None:
        count = min(self._turn_bytes.left_for(self.pump), self.to_send, 10)
        if count:
            self.to_send -= count
            self._turn_bytes.spend(count)
            self._sent.append(f"{self._name}{count}")
        if self.to_send:
            self._turn_bytes.wait(self.pump)


async def test_who_waits_comes_first_in_the_next_turn_and_nobody_twice_in_one() -> None:
    turn_bytes, sent = TurnBytes(25), list[str]()
    one, two, three, late = (
        Link(turn_bytes, count, sent, name) for count, name in ((30, "a"), (10, "b"), (10, "c"), (5, "d"))
    )
    for link in (one, one, two, three):
        link.pump()
    assert sent == ["a10", "b10", "c5"]
    sent.clear()
    await asyncio.sleep(0)
    late.pump()
    assert sent == ["a10", "c5", "d5"]
    sent.clear()
    for _ in range(3):
        await asyncio.sleep(0)
    assert sent == ["a10"]
    assert turn_bytes.left_for(late.pump) == 15


async def test_turns_that_spend_little_are_one_and_none_spends_more_than_it_may() -> None:
    turn_bytes, sent = TurnBytes(25), list[str]()
    for _ in range(2):
        Link(turn_bytes, 5, sent, "a").pump()
        await asyncio.sleep(0)
    assert turn_bytes.left_for(lambda: None) == 15
    Link(turn_bytes, 5, sent, "b").pump()
    assert turn_bytes.left_for(lambda: None) == 10
    await asyncio.sleep(0)
    assert turn_bytes.left_for(lambda: None) == 25


async def test_a_closed_one_calls_nobody() -> None:
    turn_bytes, sent = TurnBytes(10), list[str]()
    Link(turn_bytes, 30, sent, "a").pump()
    turn_bytes.close()
    await asyncio.sleep(0)
    assert sent == ["a10"]


async def test_who_takes_whole_turns_keeps_nobody_from_having_some() -> None:
    """A slave that catches up may use up each turn."""
    turn_bytes, sent = TurnBytes(10), list[str]()
    links = [Link(turn_bytes, count, sent, name) for count, name in ((10_000, "a"), (30, "b"), (30, "c"))]
    for link in links:
        link.pump()
    for _ in range(9):
        await asyncio.sleep(0)
    assert sent == ["a10", "a10", "b10", "c10", "a10", "b10", "c10", "a10", "b10", "c10"]
    turn_bytes.close()


async def test_a_fault_of_one_takes_nobody_elses_turn() -> None:
    turn_bytes, sent, faults = TurnBytes(10), list[str](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context.get("exception")))
    before, behind = Link(turn_bytes, 15, sent, "a"), Link(turn_bytes, 10, sent, "b")

    def broken() -> None:
        raise ValueError("a fault of ours")

    turn_bytes.spend(10)
    for pump in (before.pump, broken, behind.pump):
        turn_bytes.wait(pump)
    for _ in range(4):
        await asyncio.sleep(0)
    assert sent == ["a10", "b10", "a5"] and len(faults) == 1
    turn_bytes.close()
