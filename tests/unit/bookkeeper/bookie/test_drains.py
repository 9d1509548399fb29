"""A bookie that is drained by hand, over restarts, and as clients see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bookies import Home, adds, read, talking
from support.waiting import until
from tallystick.admin import bookies
from tallystick.bookkeeper.bookie import upkeep
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.drains import DrainFile
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import StorageError
from tallystick.runtime.disk import OsDisk


async def lists(bookie: Bookie) -> tuple[list[str], list[str]]:
    registered = await bookie.driver.bookies()
    return list(registered.writable), list(registered.read_only)


async def drained(bookie: Bookie) -> bool:
    statuses = await bookies.list_bookies(bookie.driver)
    return statuses[0].is_drained


async def test_a_bookie_is_drained_over_restarts_until_that_is_undone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CHECK_EVERY_S", 0.05)
    async with home.running() as bookie:
        async with talking(bookie) as peer:
            assert await peer.code(adds(1, [0])) == Code.OK
            bookies.drain(home.settings.ledger_dirs[0])
            await until(lambda: bool(home.heard("bookie is read-only")))
            assert await peer.code(adds(1, [1])) == Code.READ_ONLY
            assert await peer.code(read(1, 0)) == Code.OK
            recovery = adds(1, [1], flags=v2.RequestFlag.RECOVERY_ADD | v2.RequestFlag.HIGH_PRIORITY)
            assert await peer.code(recovery) == Code.OK
        assert await lists(bookie) == ([], ["b0"])
        await until(lambda: bookie._listing is not None and bookie._listing._shown_info is not None)
        assert await drained(bookie)
        assert home.heard("bookie is read-only")[0].fields["reason"] == "drained by hand"
    home.events.clear()
    async with home.running() as bookie:
        assert await lists(bookie) == ([], ["b0"])
        bookies.undo_drain(home.settings.ledger_dirs[0])
        await until(lambda: bool(home.heard("bookie takes writes again")))
        assert home.heard("bookie takes writes again")[0].fields["reason"] == "drained by hand"
        assert await lists(bookie) == (["b0"], [])
        async with talking(bookie) as peer:
            assert await peer.code(adds(1, [2])) == Code.OK


def test_only_a_bookies_folder_can_be_drained(tmp_path: Path) -> None:
    drain = DrainFile(OsDisk(), str(tmp_path))
    with pytest.raises(StorageError, match="no bookie was ever started"):
        drain.order(1)
    with pytest.raises(StorageError, match="no bookie was ever started"):
        drain.undo()
    (tmp_path / "tally").mkdir()
    drain.undo()
    drain.order(1)
    assert drain.is_there
    drain.undo()
    assert not drain.is_there
