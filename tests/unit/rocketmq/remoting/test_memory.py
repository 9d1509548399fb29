"""What a server's connections held is told when they end, however they do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from support.freed import Freed
from tallystick.rocketmq.remoting import memory as memory_module
from tallystick.rocketmq.remoting.memory import LOOKS_EACH_TURN, Memory
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.events import Event, Events


@dataclass(eq=False)
class Connection:
    peer: str
    condemned: list[str] = field(default_factory=list)

    def tell_unsent(self) -> None: ...

    def condemn(self, reason: str) -> None:
        self.condemned.append(reason)


async def test_what_connections_held_is_told_once_at_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    freed, told = Freed(), list[Event]()
    monkeypatch.setattr(memory_module, "FreedMemory", lambda: freed)
    memory = Memory(SystemClock(), Events(told.append), 1000, 60.0)
    goes, stays = Connection("10.0.0.1:1"), Connection("10.0.0.2:1")
    memory.unfinished(goes, 300, progress=False)
    memory.unfinished(stays, 900, progress=False)
    memory.kept(stays, 7)
    assert (len(goes.condemned), stays.condemned, freed.sizes) == (1, [], [300])
    memory.forget(goes)
    memory.forget(stays)
    assert [size for size in freed.sizes if size] == [300, 907]
    assert [event.fields["bytes"] for event in told] == [300]
    memory.close()
    assert freed.closed, "nothing of a server that is closed is due later"


@dataclass(eq=False)
class Slow(Connection):
    """Its peer takes nothing; it counts the looks."""

    work: list[str] = field(default_factory=list)
    memory: Memory | None = None

    def tell_unsent(self) -> None:
        assert self.memory is not None
        self.work.append("look")
        self.memory.unsent(self, 100, written_bytes=0)

    def condemn(self, reason: str) -> None:
        self.work.append("end")


async def test_a_crowd_is_looked_at_and_closed_over_several_turns() -> None:
    """Of thousands that stalled together the look that found it closed all."""
    memory, work, count = Memory(SystemClock(), Events(), 1 << 30, 0.0), list[str](), 1000
    for number in range(count):
        memory.unsent(Slow(f"10.0.0.1:{number}", work=work, memory=memory), 100, written_bytes=100)
    memory._look()
    of_turns, done = list[int](), 0
    while memory.unsent_bytes:
        of_turns.append(len(work) - done)
        done = len(work)
        await asyncio.sleep(0)
    assert len(of_turns) >= count // LOOKS_EACH_TURN and max(of_turns) <= 2 * LOOKS_EACH_TURN
    assert work.count("end") == count == memory.dropped_connections
    memory.close()
