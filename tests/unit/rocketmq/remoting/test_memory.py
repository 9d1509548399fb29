"""What a server's connections held is told when they end, however they do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from support.clocks import ManualClock
from support.freed import Freed
from support.waiting import until
from tallystick.rocketmq.remoting import memory as memory_module
from tallystick.rocketmq.remoting.memory import LOOKS_EACH_TURN, Memory
from tallystick.runtime.budget import CloseReason
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
        self.memory.unsent(self, 100, has_taken=False)

    def condemn(self, reason: str) -> None:
        self.work.append("end")


async def test_a_crowd_is_looked_at_and_closed_over_several_turns() -> None:
    """Of thousands that stalled together the look that found it closed all."""
    memory, work, count = Memory(SystemClock(), Events(), 1 << 30, 0.0), list[str](), 1000
    for number in range(count):
        memory.unsent(Slow(f"10.0.0.1:{number}", work=work, memory=memory), 100, has_taken=False)
    memory._look()
    of_turns, done = list[int](), 0
    while memory.unsent_bytes:
        of_turns.append(len(work) - done)
        done = len(work)
        await asyncio.sleep(0)
    assert len(of_turns) >= count // LOOKS_EACH_TURN and max(of_turns) <= 2 * LOOKS_EACH_TURN
    assert work.count("end") == count == memory.dropped_connections
    memory.close()


@dataclass(eq=False)
class Counted(Connection):
    """It has taken ``taken`` bytes of ``size`` when it is looked at."""

    memory: Memory | None = None
    size: int = 0
    taken: int = 0
    looks: int = 0

    def tell_unsent(self) -> None:
        assert self.memory is not None
        self.looks += 1
        self.memory.unsent(self, self.size - self.taken, has_taken=False)


def memory_of(
    limit_bytes: int = 1000, stalled_after_s: float = 60.0, told: list[Event] | None = None
) -> tuple[Memory, ManualClock]:
    clock = ManualClock()
    events = Events() if told is None else Events(told.append)
    return Memory(clock, events, limit_bytes, stalled_after_s), clock


def holding(memory: Memory, peer: str, size: int, taken: int = 0) -> Counted:
    holder = Counted(peer, memory=memory, size=size, taken=taken)
    memory.unsent(holder, size, has_taken=False)
    return holder


async def test_nobody_goes_for_what_it_has_taken_meanwhile() -> None:
    memory, _ = memory_of()
    quick = holding(memory, "10.0.0.1:1", 600, taken=600)
    slow = holding(memory, "10.0.0.2:1", 500)
    assert (quick.condemned, slow.condemned, memory.unsent_bytes) == ([], [], 500)
    memory.close()


async def test_what_is_kept_of_a_peer_is_bounded_at_once() -> None:
    memory, _ = memory_of()
    keeper = Connection("10.0.0.1:1")
    memory.kept(keeper, 1001)
    assert keeper.condemned == [str(CloseReason.KEPT)]
    memory.close()


async def test_who_takes_while_more_is_written_has_not_stalled() -> None:
    memory, clock = memory_of()
    takes, stalls = holding(memory, "10.0.0.1:1", 100), holding(memory, "10.0.0.2:1", 100)
    clock.time = 30.0
    memory.unsent(takes, 150, has_taken=True)
    memory.unsent(stalls, 160, has_taken=False)
    takes.size, stalls.size, clock.time = 150, 160, 60.0
    memory._look()
    assert (takes.condemned, stalls.condemned) == ([], [str(CloseReason.STALLED)])
    memory.close()


async def test_of_unfinished_requests_those_go_of_whom_none_came_whole_for_longest() -> None:
    memory, clock = memory_of()
    served, waits, third = Connection("10.0.0.1:1"), Connection("10.0.0.2:1"), Connection("10.0.0.3:1")
    memory.unfinished(served, 400, progress=False)
    clock.time = 1.0
    memory.unfinished(waits, 400, progress=False)
    clock.time = 2.0
    memory.unfinished(served, 500, progress=True)
    memory.unfinished(third, 300, progress=False)
    assert [bool(each.condemned) for each in (served, waits, third)] == [False, True, False]
    memory.close()


async def test_a_close_is_told_once_for_each_host_and_reason() -> None:
    told = list[Event]()
    memory, _ = memory_of(told=told)
    for port in range(3):
        memory.kept(Connection(f"10.0.0.1:{port}"), 1001)
        memory.unfinished(Connection(f"10.0.0.1:{port + 3}"), 1001, progress=False)
    memory.kept(Connection("10.0.0.2:1"), 1001)
    assert [(event.fields["peer"], event.fields["reason"]) for event in told] == [
        ("10.0.0.1:0", str(CloseReason.KEPT)),
        ("10.0.0.1:3", str(CloseReason.UNFINISHED)),
        ("10.0.0.2:1", str(CloseReason.KEPT)),
    ]
    memory.close()


async def test_what_overflows_while_all_are_looked_at_goes_before_that_ends() -> None:
    memory, _ = memory_of(limit_bytes=1_000_000)
    crowd = [holding(memory, f"10.0.0.1:{number}", 100) for number in range(10 * LOOKS_EACH_TURN)]
    memory._look()
    large = holding(memory, "10.0.0.2:1", 1_000_000)
    await asyncio.sleep(0)
    assert large.condemned and sum(each.looks for each in crowd) <= 2 * LOOKS_EACH_TURN
    memory.close()


async def test_a_fault_in_a_look_hinders_no_other_look() -> None:
    """Who must go was closed by nothing any more: the look that failed was under way for ever."""
    memory, _ = memory_of()

    class Broken(Connection):
        def tell_unsent(self) -> None:
            raise ValueError("a fault of ours")

    memory.unsent(Broken("10.0.0.1:1"), 100, has_taken=False)
    with pytest.raises(ValueError, match="a fault of ours"):
        memory._look()
    keeper = Connection("10.0.0.2:1")
    memory.kept(keeper, 1001)
    await until(lambda: keeper.condemned)
    memory.close()


async def test_a_memory_that_is_closed_looks_at_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "LOOK_S", 0.005)
    memory, _ = memory_of(limit_bytes=1_000_000)
    crowd = [holding(memory, f"10.0.0.1:{number}", 100) for number in range(3 * LOOKS_EACH_TURN)]
    memory._look()
    memory.close()
    await asyncio.sleep(0.02)
    assert sum(each.looks for each in crowd) == LOOKS_EACH_TURN


async def test_no_look_is_due_at_a_memory_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "LOOK_S", 0.005)
    memory, _ = memory_of()
    holder = holding(memory, "10.0.0.1:1", 100)
    memory.close()
    await asyncio.sleep(0.02)
    assert holder.looks == 0


async def test_a_peer_that_has_something_to_take_is_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a look finds nothing to tell."""
    monkeypatch.setattr(memory_module, "LOOK_S", 0.01)
    memory, _ = memory_of()
    looks = 0

    class Silent(Connection):
        def tell_unsent(self) -> None:
            nonlocal looks
            looks += 1

    memory.unsent(Silent("10.0.0.1:1"), 100, has_taken=False)
    await until(lambda: looks >= 3)
    memory.close()
