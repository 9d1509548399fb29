"""``store/config/``: the broker's tables as JSON files of the original's names and members (``ConfigManager``, H12).

::

    topics.json            written at each change            consumerOffset.json   every 5 s while it changes
    subscriptionGroup.json written at each change            delayOffset.json      a slave's copy, as the master sent it
    tallyLocks.json        ours alone: see ``locks``        tallyResets.json      ours alone: see ``resets``
    tallyAccess.json       ours alone: see ``access``

The original indents them; ours have a line for each entry, which is written in a thirtieth of the time.

``X.new`` is written, X is renamed to ``X.bak`` and X.new to X: after a crash at any moment X is whole, or it is not
there and X.bak is whole. The original writes X in place instead; both read what the other left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from tallystick.errors import CorruptRecord, RemoteProtocolError
from tallystick.runtime.atomic import AtomicWrite
from tallystick.runtime.disk import Disk, read_file

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
CONSUMER_OFFSETS = "consumerOffset.json"
DELAY_OFFSETS = "delayOffset.json"
RESETS = "tallyResets.json"
LOCKS = "tallyLocks.json"
ACCESS_FILE = "tallyAccess.json"

T = TypeVar("T")


class ConfigFiles:
    """The files of one store directory. Two threads must not use it at once for one file."""

    def __init__(self, disk: Disk, store_directory: str) -> None:
        self._disk = disk
        self.directory = os.path.join(store_directory, "config")
        disk.makedirs(self.directory)
        disk.sync_dir(store_directory)  # else power loss could take the folder away, with files that were synced

    def load(self, name: str, parse: Callable[[bytes], T], *, stands_in: bool = True) -> T | None:
        """Returns what the file holds, or else its predecessor. Returns None if neither exists, or both are empty.
        Without ``stands_in`` a file that exists must be whole: its predecessor has what was taken back since.

        A predecessor that had to stand in is put in the file's place (which needs no room on the disk): else the next
        save would make the damaged file the predecessor. Raises CorruptRecord when what exists cannot be read: going on
        without a table would lose it at the next save.
        """
        path = os.path.join(self.directory, name)
        damaged: list[tuple[str, Exception]] = []
        for candidate in (path, path + ".bak"):
            exists = self._disk.exists(candidate)
            data = read_file(self._disk, candidate) if exists else b""
            if not data.strip() and (stands_in or not exists):
                continue
            try:
                table = parse(data)
            except RemoteProtocolError as error:
                if not stands_in:
                    reason = "the file is damaged, and its .bak may have what was taken back since: repair it"
                    raise CorruptRecord(f"{reason} ({error})", path=candidate) from error
                damaged.append((candidate, error))
                continue
            if candidate != path:
                self._disk.rename(candidate, path)
            self._settle(path)
            return table
        if damaged:
            first, why = damaged[0]
            raise CorruptRecord(f"the file is damaged, and so is its .bak: {why}; repair or remove both", path=first)
        return None

    def _settle(self, path: str) -> None:
        """Sync what was read: a process that died amid a save may have left names and bytes that power loss would still
        take back, and clients are served from them."""
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()
        self._disk.sync_dir(self.directory)

    def save(self, name: str, *text: bytes) -> None:
        """Replace the content by these pieces; it is durable when this returns. Raises StorageError: then the old
        content stands, perhaps as the predecessor."""
        new = self.begin(name)
        try:
            new.write(*text)
            self.finish(name, new)
        finally:
            new.close()

    def begin(self, name: str) -> AtomicWrite:
        """Begin to replace the content piece by piece: write it, ``finish`` it, close it. Raises StorageError."""
        return AtomicWrite(self._disk, os.path.join(self.directory, name))

    def finish(self, name: str, new: AtomicWrite) -> None:
        """Put the new content in the place of the old one. It is durable when this returns. Raises StorageError."""
        path = os.path.join(self.directory, name)

        def replacing() -> None:
            if self._disk.exists(path):
                self._disk.rename(path, path + ".bak")

        new.finish(replacing)

    def remove(self, name: str) -> None:
        """Delete a file for good: first the predecessor, which would stand in for it. Raises StorageError."""
        for path in (os.path.join(self.directory, name + ".bak"), os.path.join(self.directory, name)):
            if self._disk.exists(path):
                self._disk.unlink(path)
                self._disk.sync_dir(self.directory)
