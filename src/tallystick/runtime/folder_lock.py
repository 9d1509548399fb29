"""Folders that one process holds at a time."""

from __future__ import annotations

import fcntl
import os

from tallystick.errors import UsageError
from tallystick.runtime.os_file import os_errors

LOCK_FILE = "LOCK"


class ByteLock:
    """Holds a file for this process by its first byte, as Java's ``FileChannel.tryLock(0, 1, false)`` does.

    The kernel drops it when the process dies, and also when the process closes any other handle of this file.
    """

    def __init__(self, path: str, content: bytes) -> None:
        """``content`` is written to the file. Raises UsageError when another process holds it."""
        with os_errors("lock", path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError as error:
            os.close(self._fd)
            raise UsageError(
                "another process uses this folder; stop it first or choose another folder", path=path
            ) from error
        os.pwrite(self._fd, content, 0)

    def release(self) -> None:
        os.close(self._fd)


class FolderLock:
    """Holds a folder for this process. The kernel drops it when the process dies: to hold it proves that."""

    def __init__(self, path: str) -> None:
        self.path = os.path.join(path, LOCK_FILE)
        with os_errors("lock", self.path):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise UsageError(
                "another process uses this folder; stop it first or choose another folder", path=path
            ) from error

    def release(self) -> None:
        os.close(self._fd)
