"""A port between a client and a server, whose connections have all ended when it is left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Visit = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening_between(visit: Visit) -> AsyncIterator[int]:
    """Yields the port. Leaving waits for all visits: who left a connection open would fail a later test."""

    async def closed_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            await visit(reader, writer)

    async with asyncio.TaskGroup() as visits:

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            visits.create_task(closed_at_the_end(reader, writer))

        async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
            yield int(server.sockets[0].getsockname()[1])


async def carried(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Carry bytes on each of the ways until one of them ends; the others end with it."""

    async def one(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(4096):
            target.write(data)

    carriers = [asyncio.create_task(one(*way)) for way in ways]
    await asyncio.wait(carriers, return_when=asyncio.FIRST_COMPLETED)
    for carrier in carriers:
        carrier.cancel()
    await asyncio.gather(*carriers, return_exceptions=True)
