"""A cluster of bookies of either kind, and one long-lived client of each kind on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from support.java import Java
from support.peers import Bookie, Driver

KINDS = ("java", "tally")
OTHER = {"java": "tally", "tally": "java"}
# How the original must be set to speak version 2, and not to limit itself to 5,000 adds a second.
JAVA_CLIENT = {"useV2WireProtocol": "true", "throttle": 0, "numIOThreads": 1, "numWorkerThreads": 1}


@dataclass
class Cluster:
    """Bookies under one root of the ZooKeeper tree, and one long-lived client of each kind."""

    name: str
    uri: str
    java: Java
    folder: Path
    bookies: list[Bookie] = field(default_factory=list)
    clients: dict[str, Driver] = field(default_factory=dict)

    async def client(self, kind: str) -> Driver:
        """A client of its own process: for a test that kills it."""
        if kind == "java":
            return await Driver.original(self.java, self.uri, self.folder, JAVA_CLIENT)
        return await Driver.ours(self.uri, self.folder)

    async def start(self) -> None:
        await asyncio.gather(*(bookie.start() for bookie in self.bookies))
        started = await asyncio.gather(*(self.client(kind) for kind in KINDS))
        self.clients = dict(zip(KINDS, started, strict=True))

    def bookie(self, id: str) -> Bookie:
        return next(bookie for bookie in self.bookies if bookie.id == id)

    async def restart(self, *bookies: Bookie) -> None:
        """Start again, and wait until both clients see them in the list of the living."""
        await asyncio.gather(*(bookie.start() for bookie in bookies))
        for client in self.clients.values():
            wanted = {bookie.id for bookie in bookies}
            # The driver only answers: it has no way to call back.
            while not wanted <= set((await client.ask("bookies"))["bookies"].split(",")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        for peer in (*self.clients.values(), *self.bookies):
            peer.kill()
