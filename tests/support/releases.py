"""Servers of an earlier release of ours, which an upgrade begins with and a roll-back ends with.

An archive holds the package as it was, without what no server needs (simulator, pipeline, testing); its servers run in
this environment, whose libraries are the same.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from support.peers import Server

_ARCHIVES = Path(__file__).resolve().parent.parent / "scenarios" / "releases"
SINGLE_COPIES = _ARCHIVES / "single-copies.tar.xz"  # the last one before lost copies were made good


class Release:
    """An earlier release, unpacked."""

    def __init__(self, archive: Path, folder: Path) -> None:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        self._folder = folder
        self._commands: dict[Server, list[str]] = {}

    def runs(self, server: Server) -> None:
        """The server's next start is one of this release."""
        todays = self._commands.setdefault(server, server.command)
        at = todays.index("-m") - 1
        server.command = [*todays[:at], "env", f"PYTHONPATH={self._folder}", *todays[at:]]

    def ends_at(self, server: Server) -> None:
        """The server's next start is one of this checkout again."""
        server.command = self._commands[server]
