"""The highest ledger of a stopped bookie's folders: whoever puts older metadata back gives no id out twice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.log_index import load_index
from tallystick.bookkeeper.bookie.segment import COMMIT_BYTES, Segment
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state_file import StateFile
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk


def highest_ledger(disk: Disk, journal_folders: Sequence[str], ledger_folders: Sequence[str]) -> LedgerId:
    """Return the highest ledger that the folders ever had, as far as they can tell, -1 if they had none.

    The folders are those of a cookie. Nothing is written. Raises StorageError while a bookie uses them, where there are
    none, and for what is damaged or of a newer version.
    """
    folders = tuple(dict.fromkeys((*journal_folders, *ledger_folders)))
    for folder in folders:
        if not disk.exists(folder):
            raise StorageError("there is no such folder", path=folder)
    locks = [disk.lock(folder) for folder in folders]
    try:
        return max(_stored(disk, journal_folders, ledger_folders), default=-1)
    finally:
        for lock in locks:
            lock.release()


def _stored(disk: Disk, journal_folders: Sequence[str], ledger_folders: Sequence[str]) -> Iterator[LedgerId]:
    for folder in ledger_folders:
        yield from _in_state(disk, os.path.join(folder, "ledgers"))
    for folder in journal_folders:
        journal = os.path.join(folder, "journal")
        for name in disk.listdir(journal) if disk.exists(journal) else ():
            if name.endswith(".segment"):
                yield from _in_segment(disk, os.path.join(journal, name))


def _in_state(disk: Disk, ledgers: str) -> Iterator[LedgerId]:
    """Yield the ledgers of a ledger folder's copy of the state, and of its logs."""
    state = StateFile(disk, ledgers, StorageSettings().state_spare_bytes).read() if disk.exists(ledgers) else None
    if state is None:
        return
    yield from state.ledgers
    yield from state.deleted
    numbers = {folder.path: folder.number for folder in state.layout.folders}
    for log in state.logs:
        if state.log_folders.get(log, 0) == numbers.get(ledgers, 0):
            yield from (piece.ledger for piece in load_index(disk, ledgers, log)[1])


def _in_segment(disk: Disk, path: str) -> Iterator[LedgerId]:
    """Yield the ledgers of all commits, be they replayed or not: none of them says less than was."""
    file = disk.open(path)
    try:
        for _, start, data in Segment.read(path, file).commits():
            for record in records.decode(bytes(data[COMMIT_BYTES:]), path, start + COMMIT_BYTES):
                yield record.ledger
    finally:
        file.close()
