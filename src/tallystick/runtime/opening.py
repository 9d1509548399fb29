"""What ``connect``, ``create_ledger`` and their kind return: a handle that is still to be opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tallystick.errors import UsageError


class AsyncHandle(Protocol):
    """What can be used with ``async with``."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


Handle = TypeVar("Handle", bound=AsyncHandle)


class Opening(Generic[Handle]):
    """``await`` it, or enter it with ``async with``: that closes the handle at the end.

    Nothing is asked of anybody before. It opens one handle: nobody would close that of the first time.
    """

    def __init__(self, open_: Callable[[], Awaitable[Handle]], call: str) -> None:
        """``call`` is how the user wrote it, for messages."""
        self._open = open_
        self._call = call
        self._handle: Handle | None = None
        self._is_used = False

    def __await__(self) -> Generator[Any, None, Handle]:
        """Raises UsageError the second time, and after it was entered."""
        self._use()
        return self._open().__await__()

    def anew(self) -> Opening[Handle]:
        """Returns what the same call would return again: another handle that is still to be opened."""
        return Opening(self._open, self._call)

    def _use(self) -> None:
        if self._is_used:
            raise UsageError(f"{self._call} is opened a second time: call it again for another one")
        self._is_used = True

    def __repr__(self) -> str:
        return f"<{self._call}: not opened, await it or use it with `async with`>"

    if not TYPE_CHECKING:  # a type checker names the mistake by itself

        def __getattr__(self, name: str) -> Any:
            """Raises UsageError for what the handle would have, and AttributeError for what Python looks for."""
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise UsageError(self._how_to_open(), asked_for=name)

        def __aiter__(self) -> None:
            raise UsageError(self._how_to_open())

        def __enter__(self) -> None:
            raise UsageError(f"use it as `async with {self._call} as …`; tallystick.sync has the same without async")

        def __exit__(self, *arguments: object) -> None:
            """Python looks for it before it enters."""

        def _how_to_open(self) -> str:
            call = self._call
            return f"this is not open: use it as `async with {call} as …`, or what `await` returns: `… = await {call}`"

    async def __aenter__(self) -> Handle:
        """Raises UsageError the second time, and after it was awaited."""
        self._use()
        self._handle = await self._open()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._handle is not None, "it was entered"
        await self._handle.__aexit__(kind, error, trace)
