"""What a saver writes and how often, whatever the tables are and however often they change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from support.stores import SteppingClock
from support.workers import WorkerAtOnce
from tallystick.errors import DiskFull
from tallystick.rocketmq.broker import saver as saver_module
from tallystick.rocketmq.broker.config_files import TOPICS, ConfigFiles
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.runtime.disk import File, OsDisk
from tallystick.runtime.events import Event, Events


class Plain(BrokerTables):
    """One table, of so many pieces."""

    def __init__(self, pieces: int = 1) -> None:
        self.changes, self.changed, self.pieces, self.asked = 0, lambda: None, pieces, list[bool]()

    def unsaved_files(self, *, urgent: bool = False) -> list[str]:
        self.asked.append(urgent)
        return [TOPICS]

    def text(self, name: str) -> Iterator[bytes]:
        return (b"%d," % number for number in range(self.pieces))

    def saved(self, name: str) -> None:
        pass

    def failed(self, name: str) -> None:
        pass

    def is_urgent(self, name: str) -> bool:
        return False


async def test_what_is_not_urgent_is_saved_each_period_however_often_urgent_changes_come(tmp_path: Path) -> None:
    clock, tables = SteppingClock(), Plain()
    saver = Saver(tables, ConfigFiles(OsDisk(), str(tmp_path)), clock, Events(), WorkerAtOnce())
    saver.start()
    for _ in range(round(3 * saver_module.PERIOD_S)):
        clock.ms += 1000
        tables.changed()
        for _ in range(20):
            await asyncio.sleep(0)
    assert tables.asked.count(False) >= 2 and tables.asked.count(True) > 2
    await saver.close()


@pytest.mark.parametrize("more", [-1, 0, 1, 2 * saver_module.AT_ONCE])
async def test_a_table_of_any_length_is_written_whole(tmp_path: Path, more: int) -> None:
    tables = Plain(saver_module.AT_ONCE + more)
    saver = Saver(tables, ConfigFiles(OsDisk(), str(tmp_path)), SteppingClock(), Events(), WorkerAtOnce())
    await saver.save()
    assert (tmp_path / "config" / TOPICS).read_bytes() == b"".join(tables.text(TOPICS))
    await saver.close()


async def test_a_table_that_fails_again_is_told_of_again_and_no_file_stays_open(tmp_path: Path) -> None:
    class Closing(OsDisk):
        """Files that are open are counted; nothing can be written while it is full."""

        full, opened = False, 0

        def open(self, path: str, **how: bool) -> File:
            file, disk = super().open(path, **how), self

            class Counted:
                def write(self, *data: Any) -> None:
                    if disk.full:
                        raise DiskFull("no room", path=path)
                    file.write(*data)

                def close(self) -> None:
                    disk.opened -= 1
                    file.close()

                def __getattr__(self, name: str) -> Any:
                    return getattr(file, name)

            self.opened += 1
            return cast(File, Counted())

    told, disk = list[Event](), Closing()
    tables = Plain(3 * saver_module.AT_ONCE)
    saver = Saver(tables, ConfigFiles(disk, str(tmp_path)), SteppingClock(), Events(told.append), WorkerAtOnce())
    for disk.full in (True, True, False, True):
        await saver.save()
        assert disk.opened == 0
    assert [event.kind for event in told] == ["table not saved"] * 2
    disk.full = False
    await saver.close()
