"""Lines of a file descriptor as they come: a whole block of them from a file, one at a time from somebody who types."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from tallystick.errors import TallyError, UsageError

BLOCK_BYTES = 256 * 1024


async def lines(fd: int, max_bytes: int) -> AsyncGenerator[list[bytes], None]:
    """Lists of lines without their line breaks; a last line without one counts.

    Raises UsageError for a first line of more than ``max_bytes``, and TallyError for a later one, since lines were
    taken; before it is read to its end, which need not exist.
    """
    rest, line_count = b"", 0
    async for block in _blocks(fd):
        *whole, rest = (rest + block).split(b"\n")
        line_count += len(whole)
        if whole:
            yield whole
        if len(rest) > max_bytes:
            if not line_count:
                raise UsageError("the first line is too long", max_bytes=max_bytes)
            raise TallyError(f"line {line_count + 1} is too long; those before it were taken", max_bytes=max_bytes)
    if rest:
        yield [rest]


async def _blocks(fd: int) -> AsyncIterator[bytes]:
    import os

    while True:
        await _readable(fd)
        block = os.read(fd, BLOCK_BYTES)
        if not block:
            return
        yield block


async def _readable(fd: int) -> None:
    """Wait for a pipe or terminal without a thread, so that Ctrl-C need not wait for one. Files are always readable."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:  # epoll takes no ordinary file
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
