"""A network on which an attempt to connect may hang, as where packets are dropped."""

from __future__ import annotations

import asyncio

from support.machines import machine
from tallystick.runtime.network import Listener, Network, ProtocolFactory, Reservation


class BlackHole:
    """Attempts to connect over a machine's network hang until they are given up, unless it ``passes``."""

    def __init__(self, passes: bool = False) -> None:
        self.passes = passes
        self.attempts = 0
        self._network: Network = machine().network

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        self.attempts += 1
        if self.passes:
            return await self._network.connect(host, port, factory, within_s)
        async with asyncio.timeout(within_s):
            await asyncio.get_running_loop().create_future()
        raise AssertionError("nothing ends this wait")

    async def listen(self, host: str, port: int, factory: ProtocolFactory, *, serving: bool = True) -> Listener:
        return await self._network.listen(host, port, factory, serving=serving)

    def reserve(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> Reservation:
        return self._network.reserve(host, *offsets, port=port, purpose=purpose)
