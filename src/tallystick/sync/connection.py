"""What the blocking clients of both kinds share: they connect when first used, once for each process."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from types import TracebackType
from typing import Generic, Self

from tallystick.errors import UsageError
from tallystick.runtime.connecting import Client, Connecting
from tallystick.sync.loop import Loop


class Connection(Generic[Client]):
    """Base of a blocking client. ``close`` it, or use ``with``. Clients with equal settings share a loop."""

    def __init__(self, connecting: Connecting[Client], settings: Hashable) -> None:
        self._connecting, self._settings = connecting, settings
        self._connected: tuple[int, Loop, Client] | None = None
        self._closed = False
        self._guard = threading.Lock()

    def _client(self) -> tuple[Loop, Client]:
        with self._guard:
            if self._closed:
                raise UsageError("this client is closed")
            if self._connected is None or self._connected[0] != os.getpid():
                loop = Loop.acquire(self._settings)
                try:
                    connected = loop.run(self._connect())
                except BaseException:
                    loop.release()
                    raise
                self._connected = (os.getpid(), loop, connected)
            return self._connected[1:]

    async def _connect(self) -> Client:
        return await self._connecting

    def close(self) -> None:
        with self._guard:
            self._closed = True
            connected, self._connected = self._connected, None
        if connected is not None and connected[0] == os.getpid():
            _, loop, client = connected
            loop.run(client.close())
            loop.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
