"""A client that is still to be made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tallystick.errors import UsageError


class Closable(Protocol):
    async def close(self) -> None: ...


Client = TypeVar("Client", bound=Closable)


class Connecting(Generic[Client]):
    """``await`` it, or enter it with ``async with``: that closes the client at the end. Each time makes a new one."""

    def __init__(self, start: Callable[[], Awaitable[Client]]) -> None:
        self._start = start
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._start().__await__()

    if not TYPE_CHECKING:  # a type checker names the mistake by itself

        def __getattr__(self, name: str) -> Any:
            """Raises UsageError for what the client would have, and AttributeError for what Python looks for."""
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise UsageError(
                "this client is not connected: use it as `async with tallystick.broker(...) as mq`, or `await` it",
                asked_for=name,
            )

    async def __aenter__(self) -> Client:
        self._client = await self._start()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()
