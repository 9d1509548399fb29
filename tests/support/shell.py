"""The original's ``bookkeeper shell``, one process a command."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from pathlib import Path

from support.java import SMALL, SOURCES, Java
from support.peers import bookie_configuration

TIMEOUT_S = 120.0

_LOG = f"-Dlog4j2.configurationFile={SOURCES / 'bookkeeper' / 'shell.properties'}"


class Shell:
    """Runs commands against one cluster, with the shell's own settings: it speaks version 3 of the protocol."""

    def __init__(self, java: Java, uri: str, folder: Path) -> None:
        self._java, self._folder = java, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._configuration = folder / "shell.conf"
        # The port is no server's: the shell only wants one.
        self._configuration.write_text(bookie_configuration(uri, 1, folder, {}))

    async def begin(self, *words: str) -> Process:
        """The process of a command that has just begun; what it prints can be read from it."""
        main = "org.apache.bookkeeper.bookie.BookieShell"
        command = self._java.command(main, "-conf", str(self._configuration), *words, flags=(*SMALL, _LOG))
        return await asyncio.create_subprocess_exec(
            *command, cwd=self._folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )

    async def run(self, *words: str) -> str:
        """All that a command prints. Raises AssertionError when it fails."""
        process = await self.begin(*words)
        async with asyncio.timeout(TIMEOUT_S):
            printed, _ = await process.communicate()
        text = printed.decode(errors="replace")
        assert process.returncode == 0, f"{' '.join(words)}: {process.returncode}\n{text[-3000:]}"
        return text
