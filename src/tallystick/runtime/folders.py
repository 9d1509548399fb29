"""Folders that survive a power loss."""

from __future__ import annotations

import contextlib
import os

from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk


def make_folder(disk: Disk, path: str) -> None:
    """Make a folder and the ones above it, each durable in its parent, also where a process that died began to.

    A folder higher up that was there before may be another user's, and not be ours to read: then it is taken for
    durable. Raises StorageError.
    """
    folder, made = path, []
    while not disk.exists(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    disk.makedirs(path)
    for higher in _above(folder):
        with contextlib.suppress(StorageError):
            disk.sync_dir(higher)
    for sure in dict.fromkeys((folder, os.path.dirname(path), *reversed(made))):
        disk.sync_dir(sure)


def _above(folder: str) -> list[str]:
    """The root first."""
    found: list[str] = []
    while (parent := os.path.dirname(folder)) != folder:
        found.insert(0, parent)
        folder = parent
    return found
