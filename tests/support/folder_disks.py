"""``FolderDisk`` with a seed, and an empty disk for one of its folders."""

from __future__ import annotations

import random

from tallystick.sim import folder_disk


class FolderDisk(folder_disk.FolderDisk):
    """See ``tallystick.sim.folder_disk``."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(random.Random(seed))

    def empty(self, folder: str) -> None:
        """Put an empty disk in the place of a folder's."""
        self.replace(folder, {})
