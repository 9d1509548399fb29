"""What a link tells the memory of its server."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tallystick.rocketmq.remoting import link as module
from tallystick.rocketmq.remoting.link import Link, Outbox, Surroundings
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.runtime.clock import SystemClock

KIB = 1024


class Transport(asyncio.Transport):
    """To a peer that takes what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.given = self.taken = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.given += len(data)

    def get_write_buffer_size(self) -> int:
        return self.given - self.taken

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class MemoryCalls:
    """Stands for a memory: (bytes that are unsent, bytes written since the call before)."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def unsent(self, link: Link, size: int, *, written: int) -> None:
        self.calls.append((size, written))


@pytest.fixture
def memory() -> MemoryCalls:
    return MemoryCalls()


@pytest.fixture
async def link(memory: MemoryCalls) -> Link:
    return Link(
        Surroundings(
            SystemClock(), RemotingSettings(), Outbox(), bytearray(1), reads_on=False, opened=lambda link: None,
            received=lambda link, commands: None, closed=lambda link, reason: None,
            refused=lambda link, error: None, memory=cast("Memory", memory),
        )
    )  # fmt: skip


def answer(*parts: bytes | memoryview) -> Command:
    return request(11, {}).answer(0, parts=list(parts))


async def test_the_memory_hears_within_a_tick_of_each_mebibyte_that_is_queued(link: Link, memory: MemoryCalls) -> None:
    """One tick serves the requests of a whole read: without it their answers had no bound."""
    link.connection_made(Transport())
    for _ in range(5):
        link.send(answer(bytes(400 * KIB)))
    assert [size // (400 * KIB) for size, _ in memory.calls] == [3]
    assert memory.calls[0][0] == memory.calls[0][1] >= module._TELL_BYTES


@pytest.mark.parametrize("view", [False, True])
async def test_what_the_memory_is_told_tells_what_the_peer_took(link: Link, memory: MemoryCalls, view: bool) -> None:
    """Views of the log take no memory until they are written. A peer that takes less than it asks for is not stalled:
    what was written, less what is unsent, is what it took."""
    transport, part = Transport(), bytes(300 * KIB)
    link.connection_made(transport)
    for _ in range(6):
        link.send(answer(memoryview(part) if view else part))
        link.flush()
        written, (unsent, _) = sum(written for _, written in memory.calls), memory.calls[-1]
        assert written - unsent == transport.taken
        transport.taken += 1000
    assert transport.given > 6 * 300 * KIB
