"""A simulated disk whose folders are disks of their own: one may be full, fail or be lost while the others go on."""

from __future__ import annotations

import copy
import random

from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.disk import Usage
from tallystick.sim.disk import SimDisk
from tallystick.sim.disk_content import Node

FOLDER_BYTES = 1000


class FolderDisk(SimDisk):
    """``free`` has the room of a folder of FOLDER_BYTES, ``full`` and ``broken`` what takes nothing, or fails."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.free: dict[str, int] = {}
        self.full: set[str] = set()
        self.broken: set[str] = set()
        self.fault = self.refuse

    def refuse(self, operation: str, path: str) -> StorageError | None:
        """Return the error of an operation."""
        if any(path.startswith(folder) for folder in self.broken):
            return StorageError("Input/output error", path=path, operation=operation)
        if operation == "write" and any(path.startswith(folder) for folder in self.full):
            return DiskFull("No space left on device", path=path)
        return None

    def usage(self, path: str) -> Usage:
        if any(path.startswith(folder) for folder in self.broken):
            raise StorageError("Input/output error", path=path)
        free = next((free for folder, free in self.free.items() if path.startswith(folder)), FOLDER_BYTES)
        return Usage(FOLDER_BYTES, free)

    def content(self, folder: str) -> dict[str, Node]:
        """Return what is on the medium of a folder's disk, to ``replace`` it with later."""
        nodes = {path: node for path, node in self._durable.items() if path.startswith(f"{folder}/")}
        for node in (nodes := copy.deepcopy(nodes)).values():
            if node is not None:
                node.cached = bytearray(node.durable)
                node.pending.clear()
        return nodes

    def replace(self, folder: str, content: dict[str, Node]) -> None:
        """Put another disk in the place of a folder's: an older one, or an empty one. The power is off."""
        self.broken.discard(folder)
        for names in (self._names, self._durable):
            for path in [path for path in names if path.startswith(f"{folder}/")]:
                del names[path]
            names.update(content)
        self._pending = {path: changes for path, changes in self._pending.items() if not path.startswith(folder)}
        self._inodes = [node for node in self._names.values() if node is not None]
