"""An operator's order to drain a bookie: the file ``DRAIN_FILE`` in the ledger folder. While it is there the bookie is
read-only, over restarts: nobody loses what it has, and new ledgers go elsewhere.

Who may write there may delete the data anyway. ``collection_orders.py`` has an order that is taken once.
"""

from __future__ import annotations

import os

from tallystick.bookkeeper.bookie.cookies import folder_of
from tallystick.errors import StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk

DRAIN_FILE = "drained"


class DrainFile:
    """The order for the bookie on a folder: another process gives it and takes it back, the bookie looks at it."""

    def __init__(self, disk: Disk, ledger_dir: str) -> None:
        self._disk, self._folder = disk, folder_of(ledger_dir)
        self._path = os.path.join(self._folder, DRAIN_FILE)

    @property
    def is_there(self) -> bool:
        return self._disk.exists(self._path)

    def order(self, now_s: int) -> None:
        """Drain the bookie. Raises StorageError when the folder is not a bookie's."""
        self._require_folder()
        write_atomic(self._disk, self._path, f"{now_s}\n".encode())

    def undo(self) -> None:
        """Let the bookie take writes again. Raises StorageError when the folder is not a bookie's."""
        self._require_folder()
        if self.is_there:
            self._disk.unlink(self._path)
            self._disk.sync_dir(self._folder)

    def _require_folder(self) -> None:
        if not self._disk.exists(self._folder):
            raise StorageError("no bookie was ever started on this folder", path=self._folder)
