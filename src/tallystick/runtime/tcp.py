"""The network of this machine."""

from __future__ import annotations

import asyncio
import os
import socket

from tallystick.runtime.network import Listener, ProtocolFactory, no_delay
from tallystick.runtime.ports import ReservedPort

BACKLOG = 1024  # connections that the kernel keeps until they are accepted
ACCEPTS = 32  # of them that one turn of asyncio's loop accepts: the bound of a server closes them only in the next one


class _TcpListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def serve(self) -> None:
        await self._server.start_serving()
        self.keep_waiting()

    def keep_waiting(self) -> None:
        """asyncio takes one number for both: have the kernel keep ``BACKLOG``."""
        for sock in self._server.sockets:
            with socket.socket(fileno=os.dup(sock.fileno())) as same:
                same.listen(BACKLOG)

    async def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """TCP of the running event loop, without Nagle's delay."""

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(within_s):
            transport, _ = await loop.create_connection(factory, host, port)
        no_delay(transport)
        return transport

    async def listen(self, host: str, port: int, factory: ProtocolFactory, *, serving: bool = True) -> Listener:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, host, port, backlog=ACCEPTS, start_serving=serving)
        listener = _TcpListener(server)
        if serving:
            listener.keep_waiting()
        return listener

    def reserve(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> ReservedPort:
        return ReservedPort(host, *offsets, port=port, purpose=purpose)
