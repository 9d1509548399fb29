"""Watchers by what they watch; a change may be told from any thread, a callback always runs on its own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from tallystick.bookkeeper.metadata.driver import Watch
from tallystick.errors import MetadataConflict
from tallystick.runtime.fork import ProcessLock

BOOKIES = "bookies"  # the key of the registrations; a ledger's key is its id


class Watchers:
    """Who is to be told of what."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._watches: dict[Hashable, list[_Watch]] = {}

    def add(self, key: Hashable, changed: Callable[[], None]) -> Watch:
        """From the event loop that ``changed`` is to run on."""
        watch = _Watch(self, key, changed, asyncio.get_running_loop())
        with self._lock:
            self._watches.setdefault(key, []).append(watch)
        return watch

    def __len__(self) -> int:
        """How many keys are watched."""
        return len(self._watches)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._watches

    def keys(self) -> list[Hashable]:
        with self._lock:
            return list(self._watches)

    def notify(self, key: Hashable) -> None:
        with self._lock:
            found = list(self._watches.get(key, ()))
        for watch in found:
            watch.tell()

    def remove(self, watch: _Watch) -> None:
        with self._lock, contextlib.suppress(KeyError, ValueError):
            self._watches[watch.key].remove(watch)
            if not self._watches[watch.key]:
                del self._watches[watch.key]


@dataclass(eq=False)
class _Watch:
    watchers: Watchers
    key: Hashable
    changed: Callable[[], None]
    loop: asyncio.AbstractEventLoop
    cancelled: bool = field(default=False, init=False)

    def tell(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._run)
        except RuntimeError:  # its loop is closed: nobody listens any more
            self.watchers.remove(self)

    def _run(self) -> None:
        if not self.cancelled:
            self.changed()

    def cancel(self) -> None:
        self.cancelled = True
        self.watchers.remove(self)


async def take_place(
    bookie: str, take: Callable[[], Awaitable[bool]], watch: Callable[[Callable[[], None]], Watch], timeout_s: float
) -> None:
    """Try ``take`` now and after each change of the registrations, until it is true.

    Raises MetadataConflict when the place was not free within ``timeout_s``: its holder lives.
    """
    changed, deadline = asyncio.Event(), asyncio.get_running_loop().time() + timeout_s
    watching = watch(changed.set)
    try:
        while True:
            changed.clear()
            if await take():
                return
            try:  # only the wait is cut short: a `take` under way may succeed
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                raise MetadataConflict(
                    "another process is registered as this bookie and keeps its registration up",
                    bookie=bookie, waited_s=timeout_s,
                ) from None  # fmt: skip
    finally:
        watching.cancel()
