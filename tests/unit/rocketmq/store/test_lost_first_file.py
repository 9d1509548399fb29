"""The first file of a log is away, and nothing was synced; later files are there. Power loss did that to stores of
versions that made a file while the name of the one before it was not durable."""

from __future__ import annotations

import contextlib

import pytest

from support.message_stores import ROOT, Shelf
from tallystick.errors import UsageError
from tallystick.sim.disk import Crashed

FIRST, SECOND = f"{0:020}", f"{4096:020}"


def shelf_without_first_file() -> Shelf:
    """A store after a power loss that left its second log file, and not the first one."""
    for seed in range(1000):
        shelf = Shelf(seed=seed)
        shelf.send(*[b"x" * 900] * 6)
        shelf.disk.power_loss()
        names = shelf.disk.sizes(f"{ROOT}/commitlog")
        if names.get(SECOND) and _has_a_record(shelf):
            shelf.disk.unlink(f"{ROOT}/commitlog/{FIRST}")
            shelf.disk.sync_dir(f"{ROOT}/commitlog")
            return shelf
    raise AssertionError("no power loss of these leaves the second file")


def _has_a_record(shelf: Shelf) -> bool:
    """Returns whether what the second file begins with came onto the disk."""
    return any(shelf.disk.open(f"{ROOT}/commitlog/{SECOND}").read(64, 0))


def operations_of_a_start() -> int:
    shelf = shelf_without_first_file()
    before = shelf.disk.operations
    shelf.open()
    return shelf.disk.operations - before


@pytest.mark.parametrize("loss", ["kill", "power_loss"])
def test_a_master_starts_wherever_a_start_before_was_interrupted(loss: str) -> None:
    """It took what it has for a slave's copy that begins there, and refused to be a master of unknown queues."""
    for operation in range(1, operations_of_a_start() + 1):
        shelf = shelf_without_first_file()
        shelf.disk.crash_at = shelf.disk.operations + operation
        with contextlib.suppress(Crashed):
            shelf.open(slave=False)
        shelf.disk.crash_at = None
        getattr(shelf.disk, loss)()
        shelf.open(slave=False)
        put = shelf.send(b"after")[0]
        shelf.settle()
        assert shelf.bodies()[-1] == b"after", operation
        assert put.queue_offset == shelf.store.queue_range("Topic", 0)[1] - 1


def test_a_slave_notes_where_its_copy_begins_and_is_no_master_by_itself() -> None:
    shelf = Shelf(slave=True)
    shelf.store.append_raw(4096, _record_of_a_master())
    shelf.store.flush()
    shelf.disk.kill()
    with pytest.raises(UsageError, match="a slave's copy of a part of its master's log"):
        shelf.open(slave=False)


def _record_of_a_master() -> bytes:
    master = Shelf()
    master.send(*[b"x" * 900] * 6)
    return bytes(master.store.slice(4096, 1 << 20))
