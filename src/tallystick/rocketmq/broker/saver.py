"""Saves the tables that change all the time: every few seconds, on a thread, and once more at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tallystick.errors import StorageError
from tallystick.rocketmq.broker.config_files import ConfigFiles
from tallystick.rocketmq.broker.tables import Tables
from tallystick.runtime.events import Events

PERIOD_S = 5.0  # flushConsumerOffsetInterval


class Saver:
    """``start`` it, ``close`` it."""

    def __init__(self, tables: Tables, files: ConfigFiles, events: Events) -> None:
        self._tables, self._files, self._events = tables, files, events
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "broker-tables")
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What runs from ``start`` to ``close``."""
        return [self._task] if self._task is not None else []

    async def close(self) -> None:
        """What is not saved yet is saved now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.save()
        self._thread.shutdown()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await asyncio.shield(self.save())

    async def save(self) -> None:
        """What changed since the last time."""
        texts = self._tables.unsaved()
        failures = await self._loop.run_in_executor(self._thread, self._write, texts) if texts else {}
        for name, error in failures.items():
            self._tables.failed(name)
            if not self._failing:
                self._events.emit("table not saved", file=name, reason=str(error))
        self._failing = bool(failures)

    def _write(self, texts: Mapping[str, bytes | str]) -> dict[str, StorageError]:
        """THREAD."""
        failures: dict[str, StorageError] = {}
        for name, text in texts.items():
            try:
                self._files.save(name, text)
            except StorageError as error:
                failures[name] = error
        return failures
