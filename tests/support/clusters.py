"""A cluster of bookies of either kind, and one long-lived client of each kind on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from support.java import Java
from support.peers import Bookie, Driver

KINDS = ("java", "tally")
OTHER = {"java": "tally", "tally": "java"}
_FEW_THREADS = {"throttle": 0, "numIOThreads": 1, "numWorkerThreads": 1}  # its throttle stops at 5,000 adds a second
EXPLICIT_LAC_MS = 100
# Clients by name: those of a kind alone speak version 2 where they can. The original's default is version 3.
JAVA_CLIENTS: dict[str, dict[str, object]] = {
    "java": {"useV2WireProtocol": "true", **_FEW_THREADS},
    "java-v3": {"explicitLacInterval": EXPLICIT_LAC_MS, **_FEW_THREADS},
}
TALLY_CLIENTS = {"tally": "auto", "tally-v2": "v2", "tally-v3": "v3"}


@dataclass
class Cluster:
    """Bookies under one root of the ZooKeeper tree, and one long-lived client of each kind."""

    name: str
    uri: str
    java: Java
    folder: Path
    bookies: list[Bookie] = field(default_factory=list)
    clients: dict[str, Driver] = field(default_factory=dict)
    others: dict[str, Driver] = field(default_factory=dict)  # once somebody asked for them

    async def client(self, name: str) -> Driver:
        """A client of its own process: for a test that kills it."""
        if name in JAVA_CLIENTS:
            return await Driver.original(self.java, self.uri, self.folder, JAVA_CLIENTS[name], name=name)
        return await Driver.ours(self.uri, self.folder, wire=TALLY_CLIENTS[name], name=name)

    async def shared(self, name: str) -> Driver:
        """A client by its name that other tests have used, and will."""
        if name not in self.others:
            self.others[name] = await self.client(name)
        return self.others[name]

    async def start(self) -> None:
        await asyncio.gather(*(bookie.start() for bookie in self.bookies))
        started = await asyncio.gather(*(self.client(kind) for kind in KINDS))
        self.clients = dict(zip(KINDS, started, strict=True))
        self.others.update(self.clients)

    def bookie(self, id: str) -> Bookie:
        return next(bookie for bookie in self.bookies if bookie.id == id)

    async def restart(self, *bookies: Bookie) -> None:
        """Start again, and wait until both clients see them in the list of the living."""
        await asyncio.gather(*(bookie.start() for bookie in bookies))
        for client in self.others.values():
            wanted = {bookie.id for bookie in bookies}
            # The driver only answers: it has no way to call back.
            while not wanted <= set((await client.ask("bookies"))["bookies"].split(",")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        for peer in (*self.others.values(), *self.bookies):
            peer.kill()
