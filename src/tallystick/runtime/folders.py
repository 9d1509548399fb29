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
    folder, new_folders = path, []
    while not disk.exists(folder):
        new_folders.append(folder)
        folder = os.path.dirname(folder)
    disk.makedirs(path)
    for higher in _above(folder):
        with contextlib.suppress(StorageError):
            disk.sync_dir(higher)
    for sure in dict.fromkeys((folder, os.path.dirname(path), *reversed(new_folders))):
        disk.sync_dir(sure)


def _above(folder: str) -> list[str]:
    """Returns the folders above this one, the root first."""
    folders: list[str] = []
    while (parent := os.path.dirname(folder)) != folder:
        folders.insert(0, parent)
        folder = parent
    return folders
