"""A network on which an attempt to connect may hang, as where packets are dropped."""

from __future__ import annotations

import asyncio

from tallystick.runtime.network import ProtocolFactory
from tallystick.runtime.tcp import TcpNetwork


class BlackHole(TcpNetwork):
    """Attempts to connect hang until they are given up, unless it ``passes``."""

    def __init__(self, passes: bool = False) -> None:
        self.passes = passes
        self.attempts = 0

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        self.attempts += 1
        if self.passes:
            return await super().connect(host, port, factory, within_s)
        async with asyncio.timeout(within_s):
            await asyncio.get_running_loop().create_future()
        raise AssertionError("nothing ends this wait")
