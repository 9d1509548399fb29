"""Orders for a collection, in the file that a command leaves for the bookie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.bookies import Home
from support.waiting import until
from tallystick.bookkeeper.bookie.collection_orders import ORDER_FRESH_S, Order, OrderFile
from tallystick.bookkeeper.bookie.cookies import folder_of
from tallystick.errors import StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import OsDisk, read_file

NOW_S = 1_700_000_000


@pytest.mark.parametrize("content", [b"junk", b"now\n", b"\xff\xfe", f"now {NOW_S - ORDER_FRESH_S - 1:.0f}\n".encode()])
async def test_an_old_or_damaged_order_is_passed_over(home: Home, content: bytes) -> None:
    path, disk = os.path.join(folder_of(home.settings.ledger_dirs[0]), "collect"), OsDisk()
    async with home.running() as bookie:
        write_atomic(disk, path, content)
        await until(lambda: home.heard("order for a collection passed over"))
        assert not disk.exists(path)
        assert not home.heard("collection ordered")
        assert bookie.counts.collections == 0


@pytest.mark.parametrize(
    ("waiting", "then"),
    [
        (f"now {NOW_S - 1}\n".encode(), b"now"),
        (f"soon {NOW_S - 1}\n".encode(), b"soon"),
        (b"junk", b"soon"),
        (f"now {NOW_S - int(ORDER_FRESH_S) - 1}\n".encode(), b"soon"),
    ],
)
async def test_a_weaker_order_replaces_no_fresh_stronger_one(home: Home, waiting: bytes, then: bytes) -> None:
    async with home.running():
        pass  # its folder is there
    path, disk = os.path.join(folder_of(home.settings.ledger_dirs[0]), "collect"), OsDisk()
    write_atomic(disk, path, waiting)
    orders = OrderFile(disk, home.settings.ledger_dirs[0])
    orders.place(Order.SOON, NOW_S)
    assert read_file(disk, path).split()[0] == then
    orders.place(Order.NOW, NOW_S)
    assert read_file(disk, path) == f"now {NOW_S}\n".encode()


def test_an_order_needs_a_bookies_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        OrderFile(OsDisk(), str(tmp_path / "none")).place(Order.NOW, NOW_S)
