"""What the blocking clients of both kinds share: they connect when first used, once for each process.

A process may be forked at any time, while another of its threads connects or uses a client: the child connects anew.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from tallystick.errors import UsageError
from tallystick.runtime.fork import ProcessLock
from tallystick.runtime.opening import Opening
from tallystick.sync.loop import LoopThread


class AsyncClient(Protocol):
    """What a blocking client wraps."""

    async def close(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


Client = TypeVar("Client", bound=AsyncClient)


class BlockingClient(Generic[Client]):
    """Base of a blocking client. ``close`` it, or use ``with``. Clients with equal settings share a loop."""

    def __init__(self, opening: Opening[Client], settings: Hashable) -> None:
        self._opening, self._settings = opening, settings
        self._connected: tuple[LoopThread, Client] | None = None
        self._closed = False
        self._guard = ProcessLock()
        _clients.add(self)

    def _client(self) -> tuple[LoopThread, Client]:
        with self._guard:
            if self._closed:
                raise UsageError("this client is closed")
            if self._connected is None:
                loop = LoopThread.acquire(self._settings)
                try:
                    connected = loop.open(self._opening.anew())
                except BaseException:
                    loop.release()
                    raise
                self._connected = loop, connected
            return self._connected

    def __repr__(self) -> str:
        if self._connected is not None:
            return repr(self._connected[1])
        return f"<{type(self).__name__} {'closed' if self._closed else 'not connected yet'}>"

    def in_child(self) -> None:
        """This process was forked: what is connected belongs to the parent, and stays on the stacks of its threads."""
        self._connected = None

    def close(self) -> None:
        """End all connections, as the asynchronous client does, and take no more calls. Repeated calls are one."""
        with self._guard:
            self._closed = True
            connected, self._connected = self._connected, None
        if connected is not None:
            loop, client = connected
            try:
                loop.run(client.close())
            finally:  # also for who interrupts it
                loop.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_clients: weakref.WeakSet[BlockingClient[Any]] = weakref.WeakSet()


def _in_child() -> None:
    for connection in list(_clients):
        connection.in_child()


os.register_at_fork(after_in_child=_in_child)
