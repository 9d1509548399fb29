"""When a cursor is saved: one save at a time, and of all that waits meanwhile only the newest state is written."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass, field

from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.cursor_store import CursorStore
from tallystick.errors import TallyError
from tallystick.runtime.events import Events


@dataclass(eq=False)
class _Save:
    """A save that waits or is under way; ``covers`` all changes up to this one."""

    covers: int
    done: asyncio.Event = field(default_factory=asyncio.Event)
    failure: TallyError | None = None


class CursorSaves:
    """The saves of one cursor. Without a store it is in memory alone, and as good as saved."""

    def __init__(self, core: CursorCore, store: CursorStore | None, events: Events, **names: str) -> None:
        self._core, self._store, self._events, self._names = core, store, events, names
        self._saved = core.changes  # all changes up to this one are stored
        self._save: _Save | None = None
        self._saving: asyncio.Task[None] | None = None
        self._refusal: TallyError | None = None
        self._is_beyond = False

    async def saved(self) -> None:
        """Wait until all that has changed by now is stored. Raises as ``CursorStore.save``."""
        if self._store is None:
            return
        changes = self._core.changes
        while self._saved < changes:
            if self._refusal is not None:
                raise copy(self._refusal)
            save = self._save
            if save is None:
                save = self._save = _Save(changes)
                self._saving = asyncio.get_running_loop().create_task(self._run(self._store, save))
            await save.done.wait()
            if save.failure is not None and save.covers >= changes:
                raise copy(save.failure)  # each of those who wait has a traceback of its own

    async def _run(self, store: CursorStore, save: _Save) -> None:
        core = self._core
        save.covers = core.changes
        try:
            if core.is_beyond and not self._is_beyond:
                self._is_beyond = True
                self._events.emit("cursor beyond bounds", **self._names, ranges=core.ranges)
            await store.save(core)
            self._saved = save.covers
        except TallyError as error:
            save.failure = error
        finally:
            self._save = None
            save.done.set()

    async def is_unchanged(self) -> bool:
        """Whether nobody else changed what is stored. Raises MetadataError when nobody can tell."""
        return self._store is None or await self._store.is_unchanged()

    async def close(self, refusal: TallyError) -> None:
        """Store what there is, unless it was stopped, and let go of the store: later calls raise ``refusal``.

        Raises as ``CursorStore.close``.
        """
        if self._store is None or self._refusal is not None:
            return
        while self._save is not None:  # who waited for one may have begun the next
            await self._save.done.wait()
        if self._refusal is not None:
            return
        self._refusal = refusal  # what is acknowledged from now on may come too late for the last state
        changes = self._core.changes
        try:
            await self._store.close(self._core, is_saved=self._saved == changes)
            self._saved = changes
        finally:
            self._store.abort()

    def abort(self, refusal: TallyError) -> None:
        """Store nothing more, as if the process died; who waits is told."""
        self._refusal = refusal
        if self._store is not None:
            self._store.abort()
        if self._saving is not None:
            self._saving.cancel()
