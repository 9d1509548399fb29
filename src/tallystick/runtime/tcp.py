"""The network of this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import suppress

from tallystick.runtime.network import Listener, ProtocolFactory, keep_alive, no_delay
from tallystick.runtime.ports import ReservedPort

BACKLOG = 1024  # connections that the kernel keeps until they are accepted
ACCEPTS = 32  # of them that one turn of the loop accepts: the bound of a server closes them only in the next one
PAUSE_S = 1.0  # until more are accepted, when this process or the machine has no file or memory for another one
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class _TcpListener:
    """Accepts itself, on copies of a server's sockets: uvloop's takes one connection in a turn of the loop, so that
    newcomers would wait for as many turns as there are others before them."""

    def __init__(self, server: asyncio.Server, factory: ProtocolFactory, *, keep_alive: bool) -> None:
        self._loop, self._server, self._factory = asyncio.get_running_loop(), server, factory
        self._keep_alive = keep_alive
        self._sockets = [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
        self._accepted: set[asyncio.Task[object]] = set()
        self._is_closed = False
        host, port = self._sockets[0].getsockname()[:2]
        self.address: tuple[str, int] = str(host), int(port)

    async def serve(self) -> None:
        for sock in self._sockets:
            sock.setblocking(False)
            sock.listen(BACKLOG)
            self._loop.add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                accepted, _ = sock.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._loop.remove_reader(sock)
                    self._loop.call_later(PAUSE_S, self._go_on, sock)
                return  # nobody is there, or who was is gone
            accepted.setblocking(False)
            if self._keep_alive:
                keep_alive(accepted)
            task = self._loop.create_task(self._connect(accepted))
            self._accepted.add(task)
            task.add_done_callback(self._accepted.discard)

    def _go_on(self, sock: socket.socket) -> None:
        if not self._is_closed:
            self._loop.add_reader(sock, self._accept, sock)

    async def _connect(self, accepted: socket.socket) -> None:
        if self._is_closed:
            accepted.close()
            return
        with suppress(OSError):  # it is gone already
            await self._loop.connect_accepted_socket(self._factory, accepted)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._server.close()


class TcpNetwork:
    """TCP of the running event loop, without Nagle's delay; ``keep_alive``: with probes of idle connections."""

    def __init__(self, *, keep_alive: bool = True) -> None:
        self._keep_alive = keep_alive

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(within_s):
            transport, _ = await loop.create_connection(factory, host, port)
        no_delay(transport)
        if self._keep_alive:
            keep_alive(transport.get_extra_info("socket"))
        return transport

    async def listen(self, host: str, port: int, factory: ProtocolFactory, *, serving: bool = True) -> Listener:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, host, port, start_serving=False)  # which binds, and no more
        listener = _TcpListener(server, factory, keep_alive=self._keep_alive)
        if serving:
            await listener.serve()
        return listener

    def reserve(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> ReservedPort:
        return ReservedPort(host, *offsets, port=port, purpose=purpose)
