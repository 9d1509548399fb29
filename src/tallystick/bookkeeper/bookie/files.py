"""Folders that survive a power loss."""

from __future__ import annotations

import os

from tallystick.runtime.disk import Disk


def make_folder(disk: Disk, path: str) -> None:
    """Make a folder and the ones above it, each durable in its parent, also where a killed process began to."""
    folders = [path]
    while not disk.exists(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    disk.makedirs(path)
    for folder in (*reversed(folders), os.path.dirname(path)):
        disk.sync_dir(folder)
