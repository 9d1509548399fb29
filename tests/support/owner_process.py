"""A process that owns a stream (``stream_owner.py``), and what it says is stored."""

from __future__ import annotations

import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.bookkeeper.wire.stream_values import Position

PROGRAM = Path(__file__).with_name("stream_owner.py")


@dataclass
class OwnerProcess:
    """``positions`` are those of the numbers 0, 1, 2 … as they were acknowledged; ``error`` is what ended it."""

    process: Process
    positions: list[Position] = field(default_factory=list)
    error: str = ""

    async def appended(self, count: int) -> None:
        """Wait until so many numbers are stored, or it ended."""
        while len(self.positions) < count and await self._line():
            pass

    async def ended(self) -> None:
        """Hear all that it said."""
        while await self._line():
            pass
        await self.process.wait()

    async def kill(self) -> None:
        self.process.kill()
        await self.ended()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def _line(self) -> bool:
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode().rstrip("\n")
        if ":" in line:
            self.positions.append(Position.parse(line))
        else:
            self.error += line
        return bool(line)


@contextlib.asynccontextmanager
async def owner_process(uri: str, stream: str, *, lease_s: float, wire: str = "auto") -> AsyncIterator[OwnerProcess]:
    command = [sys.executable, str(PROGRAM), uri, stream, str(lease_s), wire]
    process = await create_subprocess_exec(*command, stdout=PIPE)
    try:
        yield OwnerProcess(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
