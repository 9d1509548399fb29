"""A long table is followed by a rest when it was saved, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.machines import virtual_loop
from support.workers import WorkerAtOnce
from tallystick.errors import StorageError
from tallystick.rocketmq.broker import saver as saver_module
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, ConfigFiles
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events
from tallystick.sim.virtual.loop import VirtualClock


def test_a_long_table_that_changes_again_and_again_is_saved_so_many_bytes_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that goes back has all offsets saved: 206 small requests wrote 1 GB."""
    monkeypatch.setattr(saver_module, "FREE_BYTES", 1000)
    monkeypatch.setattr(saver_module, "BYTES_A_SECOND", 10_000)
    loop, size = virtual_loop(), 0
    written: list[tuple[float, int]] = []

    class Long(BrokerTables):
        def __init__(self) -> None:
            self.changes, self.changed = 0, lambda: None
            self.saves = list[float]()

        def unsaved_files(self, *, urgent: bool = False) -> list[str]:
            return [CONSUMER_OFFSETS] if self.changes else []

        def text(self, name: str) -> Iterator[bytes]:
            written.append((loop.time(), size))
            return iter([b"x" * size])

        def saved(self, name: str) -> None:
            pass

    async def commits(seconds: int) -> None:
        tables = Long()
        saver = Saver(tables, ConfigFiles(OsDisk(), str(tmp_path)), VirtualClock(loop), Events(), WorkerAtOnce())
        saver.start()
        for _ in range(10 * seconds):
            tables.changes += 1
            tables.changed()
            await asyncio.sleep(0.1)
        saved: list[StorageError | None] = []
        saver.after(tables.changes, saved.append)
        await saver.close()
        assert saved == [None]

    size = 900
    loop.run_until_complete(commits(20))
    assert len(written) >= 200, "an ordinary one is saved at each change"
    written.clear()
    size = 11_000
    loop.run_until_complete(commits(20))
    assert 18 <= len(written) <= 22
    loop.close()
