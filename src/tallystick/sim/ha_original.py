"""A master that does not know our extension: it passes over the question of a slave of ours, and never answers it."""

from __future__ import annotations

import asyncio
from typing import cast

from tallystick.rocketmq.wire.ha import ASK, REPORT
from tallystick.runtime.network import Listener, Network, ProtocolFactory, Reservation


class OriginalNetwork:
    """A ``runtime.network.Network`` on which a master of ours gets no request of our extension."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        return await self._network.connect(host, port, factory, within_s)

    async def listen(self, host: str, port: int, factory: ProtocolFactory, *, serving: bool = True) -> Listener:
        return await self._network.listen(
            host, port, lambda: _Deaf(cast("asyncio.BufferedProtocol", factory())), serving=serving
        )

    def reserve(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> Reservation:
        return self._network.reserve(host, *offsets, port=port, purpose=purpose)


class _Deaf(asyncio.Protocol):
    """What an original makes of the first bytes it is sent: a negative first report is as good as none."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        self._protocol = protocol
        self._question: bytes | None = b""  # as far as it came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._question is not None:
            data = self._question + data
            self._question = None if len(data) >= REPORT.size else data
            data = data.removeprefix(REPORT.pack(ASK)) if self._question is None else b""
        while data:
            buffer = cast("memoryview", self._protocol.get_buffer(len(data)))
            taken = min(len(buffer), len(data))
            buffer[:taken] = data[:taken]
            self._protocol.buffer_updated(taken)
            data = data[taken:]
