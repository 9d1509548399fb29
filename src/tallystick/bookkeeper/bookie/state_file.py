"""The state file of a bookie's ledgers, and the room for the next one (``state`` and ``state.spare``).

Deleting ledgers is what frees a full disk, and it needs a new state. So the spare file is allocated beforehand: the
next state is written into it and takes its place by a rename, which needs no space. Its content means nothing before.
"""

from __future__ import annotations

import contextlib
import os

from tallystick.bookkeeper.bookie.state import State
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk, read_file

STATE_FILE = "state"
SPARE_FILE = "state.spare"

_GROWTH = 2  # the room for the next state is so many times the last one, and the settings' minimum on top


class StateFile:
    """``read`` it, then ``write`` and ``reserve`` by turns; all on a thread."""

    def __init__(self, disk: Disk, directory: str, spare_bytes: int) -> None:
        self._disk, self._directory, self._spare_bytes = disk, directory, spare_bytes
        self.path, self._spare = (os.path.join(directory, name) for name in (STATE_FILE, SPARE_FILE))
        self._size = 0  # of the state that holds

    def read(self) -> State | None:
        """Return the state that holds, None if there is none yet.

        Raises CorruptRecord, and StorageError for the state of a newer version.
        """
        if not self._disk.exists(self.path):
            return None
        data = read_file(self._disk, self.path)
        self._size = len(data)
        return State.decode(data, self.path)

    def write(self, data: bytes) -> None:
        """Replace the state, encoded, so that a crash leaves the old or the new one. Raises StorageError."""
        file = self._disk.open(self._spare, create=True)
        try:
            file.write([data], 0)
            file.truncate(len(data))
            file.sync()
        finally:
            file.close()
        # From here on a failure leaves it open which state holds.
        self._disk.rename(self._spare, self.path)
        self._disk.sync_dir(self._directory)
        self._size = len(data)

    def reserve(self) -> None:
        """Allocate the room for the next state; if the disk has none, the room that is there stays."""
        with contextlib.suppress(StorageError):
            self._size = self._size or self._disk.size(self.path) or 0
            room = self._spare_bytes + _GROWTH * self._size
            file = self._disk.open(self._spare, create=True)
            try:
                if file.size() < room:
                    file.allocate(room)
                    file.sync()
            finally:
                file.close()
