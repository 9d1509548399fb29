"""Requests of one read that are too many for one turn of the loop."""

from __future__ import annotations

import asyncio
from typing import Any

from tallystick.rocketmq.remoting.backlog import TURN_S, Backlog
from tallystick.rocketmq.wire.remoting import request


class Peer:
    """What a backlog asks of a link."""

    def __init__(self) -> None:
        self.alive, self.late, self.kept = True, 0, 0

    def busy(self, change: int) -> None:
        self.late += change

    def keep(self, size: int) -> None:
        self.kept += size


class Clock:
    """Each request takes a third of a turn."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


async def test_each_turn_serves_what_it_has_time_for_in_order() -> None:
    clock, served, begun = Clock(), list[int](), list[int]()
    one, other = Peer(), Peer()

    def serve(link: Any, command: Any) -> None:
        served.append(command.opaque)
        clock.time += TURN_S / 3

    backlog = Backlog(clock, serve, lambda: begun.append(len(served)))  # type: ignore[arg-type]
    commands = [request(1) for _ in range(10)]
    backlog.received([(one, command) for command in commands[:8]])  # type: ignore[misc]
    assert len(served) == 3 and one.late == len(backlog) == 5 and one.kept > 0
    backlog.received([(other, command) for command in commands[8:]])  # type: ignore[misc]
    assert len(served) == 3 and other.late == 2  # nobody overtakes
    one.alive = False
    while len(backlog):
        before = len(served)
        await asyncio.sleep(0)
        assert len(served) - before <= 3
    assert served == [command.opaque for command in [*commands[:3], *commands[8:]]]
    assert (one.late, one.kept, other.late, other.kept) == (0, 0, 0, 0)
    assert begun[0] == 0 and len(begun) >= 2
