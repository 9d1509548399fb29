"""A port of this machine that leads to a port of the in-memory network: for clients that are not the cluster's own."""

from __future__ import annotations

import asyncio

from tallystick.runtime.network import Network

CONNECT_S = 5.0
PIECE_BYTES = 64 * 1024  # bytes of a direction that wait here; then the sender waits


class RealPort:
    """``close`` it; connections through it end."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._transports: set[asyncio.Transport] = set()

    @classmethod
    async def open(cls, inner: Network, address: str, port: int) -> RealPort:
        """Listen at this address, and connect to the same one of ``inner`` for each connection. Raises OSError."""
        real_port = cls()
        loop = asyncio.get_running_loop()
        real_port._server = await loop.create_server(lambda: _Outer(real_port, inner, address, port), address, port)
        return real_port

    def began(self, transport: asyncio.Transport) -> None:
        self._transports.add(transport)

    def ended(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport in tuple(self._transports):
            transport.abort()


class _End(asyncio.Protocol):
    """What comes in on one connection goes out on the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(PIECE_BYTES)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            if error is None:
                self.other.transport.close()
            else:
                self.other.transport.abort()


class _Outer(_End):
    """The end on this machine."""

    def __init__(self, port: RealPort, inner: Network, host: str, number: int) -> None:
        super().__init__()
        self._port, self._inner, self._where = port, inner, (host, number)
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self._port.began(self.transport)
        self.transport.pause_reading()
        self._connecting = asyncio.get_running_loop().create_task(self._connect(self.transport))

    async def _connect(self, outer: asyncio.Transport) -> None:
        inner = _End()
        self.other, inner.other = inner, self
        try:
            await self._inner.connect(*self._where, lambda: inner, CONNECT_S)
        except (OSError, TimeoutError):
            outer.abort()
            return
        if outer.is_closing():
            assert inner.transport is not None
            inner.transport.abort()
        else:
            outer.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        assert self.transport is not None
        self._port.ended(self.transport)
        super().connection_lost(error)
