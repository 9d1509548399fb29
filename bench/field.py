"""The processes of one run, behind what both kinds of runs do with them."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.java import Java
from support.peers import Peer

BIG_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")


class Peers:
    """``start_seconds``: how long servers took to answer, by side."""

    def __init__(self, java: Java, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.java, self.folder = java, folder
        self.start_seconds: dict[str, list[float]] = {}
        self.peers: list[Peer] = []

    def stop(self) -> None:
        for peer in reversed(self.peers):
            peer.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
