"""A peer with requests that are put off: its link reads no more until all of them are served."""

from __future__ import annotations

import asyncio

from tallystick.rocketmq.remoting.link import Link, Outbox, Surroundings
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.runtime.arena import Arena
from tallystick.runtime.clock import SystemClock


class Transport(asyncio.Transport):
    reads = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


async def test_a_peer_is_not_read_while_any_of_its_requests_is_put_off() -> None:
    clock, transport = SystemClock(), Transport()
    link = Link(
        Surroundings(
            clock,
            RemotingSettings(),
            Outbox(clock),
            Arena(),
            reads_on=False,
            opened=lambda link: None,
            received=lambda link: None,
            closed=lambda link, reason: None,
            refused=lambda link, error: None,
        )
    )
    link.connection_made(transport)
    reads = []
    for change in (+1, +1, -1, -1):
        link.busy(change)
        reads.append(transport.reads)
    assert reads == [False, False, False, True]
