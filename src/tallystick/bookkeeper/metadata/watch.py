"""Watchers by what they watch; a change may be told from any thread, a callback always runs on its own event loop.

What is watched is a node, whose key is its path, or the children of a node, whose key ends in a slash.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tallystick.bookkeeper.metadata.store import Watch, Znode, parent_of
from tallystick.errors import MetadataConflict
from tallystick.runtime.fork import ProcessLock


def children_key(path: str) -> str:
    return f"{path}/"


def keys_of(path: str, before: Znode | None, after: Znode | None) -> list[str]:
    """Returns the keys whose watchers are told when a node was ``before`` and is ``after``."""
    if before == after:
        return []
    is_other = before is None or after is None or before.creation != after.creation
    return [path, children_key(parent_of(path))] if is_other else [path]


class Watchers:
    """The watches of a store, by what they watch."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._watches: dict[str, list[KeyWatch]] = {}

    def add(self, key: str, changed: Callable[[], None]) -> KeyWatch:
        """Watch a key; called on the event loop on which ``changed`` is to run."""
        watch = KeyWatch(self, key, changed, asyncio.get_running_loop(), contextvars.copy_context())
        with self._lock:
            self._watches.setdefault(key, []).append(watch)
        return watch

    def __len__(self) -> int:
        """Returns how many keys are watched."""
        return len(self._watches)

    def __contains__(self, key: str) -> bool:
        return key in self._watches

    def keys(self) -> list[str]:
        with self._lock:
            return list(self._watches)

    def notify_all(self) -> None:
        """Tell everybody to look again."""
        for key in self.keys():
            self.notify(key)

    def notify(self, key: str) -> None:
        with self._lock:
            watches = list(self._watches.get(key, ()))
        for watch in watches:
            watch.tell()

    def remove(self, watch: KeyWatch) -> None:
        with self._lock, contextlib.suppress(KeyError, ValueError):
            self._watches[watch.key].remove(watch)
            if not self._watches[watch.key]:
                del self._watches[watch.key]


@dataclass(eq=False)
class KeyWatch:
    """A Watch of one key."""

    watchers: Watchers
    key: str
    changed: Callable[[], None]
    loop: asyncio.AbstractEventLoop
    context: contextvars.Context  # that of who watches, not of who changes something
    cancelled: bool = field(default=False, init=False)

    def tell(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._run, context=self.context)
        except RuntimeError:  # its loop is closed: nobody listens any more
            self.watchers.remove(self)

    def _run(self) -> None:
        if not self.cancelled:
            self.changed()

    def cancel(self) -> None:
        self.cancelled = True
        self.watchers.remove(self)


class Both:
    """Several watches as one."""

    def __init__(self, *watches: Watch) -> None:
        self._watches = watches

    def cancel(self) -> None:
        for watch in self._watches:
            watch.cancel()


async def take_place(
    bookie: str, take: Callable[[], Awaitable[bool]], watch: Callable[[Callable[[], None]], Watch], timeout_s: float
) -> None:
    """Try ``take`` now and after each change that is watched, until it is true.

    Raises MetadataConflict when the place was not free within ``timeout_s``: its holder lives.
    """
    change_event, deadline = asyncio.Event(), asyncio.get_running_loop().time() + timeout_s
    watching = watch(change_event.set)
    try:
        while True:
            change_event.clear()
            if await take():
                return
            try:  # only the wait is cut short: a `take` under way may succeed
                async with asyncio.timeout_at(deadline):
                    await change_event.wait()
            except TimeoutError:
                raise MetadataConflict(
                    "another process is registered as this bookie and keeps its registration up",
                    bookie=bookie,
                    waited_s=timeout_s,
                ) from None
    finally:
        watching.cancel()
