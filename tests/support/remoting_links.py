"""Remoting links with nobody around them, and the transport of a peer that takes what a test says."""

from __future__ import annotations

import asyncio
from typing import Any

from tallystick.rocketmq.remoting.link import Outbox, Surroundings
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.runtime.arena import Arena
from tallystick.runtime.clock import SystemClock


class Transport(asyncio.Transport):
    """To a peer that takes what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.given = self.taken = 0
        self.reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.given += len(data)

    def get_write_buffer_size(self) -> int:
        return self.given - self.taken

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def surroundings(*, reads_on: bool = False, **others: Any) -> Surroundings:
    """Those of a server's link, or of a client's (``reads_on``), in which nobody hears of anything, but for
    ``others``."""
    clock = SystemClock()
    heard = {name: lambda *_: None for name in ("opened", "received", "closed", "refused")}
    return Surroundings(clock, RemotingSettings(), Outbox(clock), Arena(), reads_on=reads_on, **{**heard, **others})
