"""Who is measured: our cluster and client with either codec, the original's at its best and by default, mixed pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from field import BIG_HEAP, Peers
from machine import resident_mb
from report import OURS, PYTHON

from support.java import Java
from support.peers import Bookie, Driver, ZooKeeper
from tallystick.codec import implementation

BATCHES, VERSION_3 = "tallystick, in batches", "tallystick, version 3"
BEST, DEFAULT = "original, best", "original, default"
OUR_CLIENT, THEIR_CLIENT = "our client, original bookies", "original client, our bookies"

# What was found to matter on two cores: Db storage, few threads, no timer before a sync, larger journal buffers.
BEST_BOOKIE = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "journalFlushWhenQueueEmpty": "true",
    "journalBufferedWritesThreshold": 4 << 20,
    "journalMaxBackups": 0,
    "serverNumIOThreads": 1,
    "numAddWorkerThreads": 1,
    "numReadWorkerThreads": 1,
    "numHighPriorityWorkerThreads": 1,
    "numJournalCallbackThreads": 1,
}
DEFAULT_BOOKIE = {"journalMaxBackups": 0}  # or some minutes fill the disk
BEST_CLIENT = {"useV2WireProtocol": "true", "throttle": 0, "numIOThreads": 1, "numWorkerThreads": 1}
# Its defaults cap a writer at 5,000 adds a second, and never tell a LAC by themselves.
DEFAULT_CLIENT = {"throttle": 0, "explicitLacInterval": 100}


@dataclass
class Side:
    """A client on three bookies; whether it appends, and can read, many entries with one call."""

    name: str
    client: Driver
    bookies: list[Bookie]
    batch_adds: bool = False
    batch_reads: bool = True

    @property
    def pids(self) -> list[int]:
        return [self.client.pid, *(bookie.pid for bookie in self.bookies)]


class Field(Peers):
    """Everything that runs at once: one ZooKeeper, a cluster of three bookies a kind, a client a side."""

    def __init__(self, java: Java, folder: Path, *, default: bool, python: bool, mixes: bool) -> None:
        super().__init__(java, folder)
        self._default, self._mixes = default, mixes
        self._python = python and implementation.in_use() != "python"
        self.sides: dict[str, Side] = {}

    async def start(self) -> None:
        """Bookies start one after another, so that each start can be timed."""
        service = await ZooKeeper.start(self.java, self.folder)
        self.peers.append(service)
        ours_uri, best_uri = await service.cluster("ours"), await service.cluster("best")
        ours = await self._bookies(OURS, [Bookie.ours(ours_uri, self.folder) for _ in range(3)])
        best = await self._bookies(BEST, [self._original(best_uri, BEST_BOOKIE, BIG_HEAP) for _ in range(3)])
        self._side(OURS, await Driver.ours(ours_uri, self.folder), ours)
        self.sides[BATCHES] = replace(self.sides[OURS], name=BATCHES, batch_adds=True)
        self._side(VERSION_3, await Driver.ours(ours_uri, self.folder, wire="v3"), ours, batch_reads=False)
        self._side(BEST, await self._client(best_uri, BEST_CLIENT, BIG_HEAP), best)
        if self._python:
            uri = await service.cluster("python")
            bookies = await self._bookies(PYTHON, [Bookie.ours(uri, self.folder, codec="python") for _ in range(3)])
            self._side(PYTHON, await Driver.ours(uri, self.folder, codec="python"), bookies)
        if self._default:
            uri = await service.cluster("default")
            bookies = await self._bookies(DEFAULT, [self._original(uri, DEFAULT_BOOKIE, ()) for _ in range(3)])
            self._side(DEFAULT, await self._client(uri, DEFAULT_CLIENT, ()), bookies, batch_reads=False)
        if self._mixes:
            self._side(OUR_CLIENT, await Driver.ours(best_uri, self.folder), best)
            self._side(THEIR_CLIENT, await self._client(ours_uri, BEST_CLIENT, BIG_HEAP), ours)

    def _original(self, uri: str, settings: Mapping[str, object], flags: tuple[str, ...]) -> Bookie:
        return Bookie.original(self.java, uri, self.folder, flags=flags, settings=settings)

    async def _client(self, uri: str, settings: Mapping[str, object], flags: tuple[str, ...]) -> Driver:
        return await Driver.original(self.java, uri, self.folder, settings, flags=flags)

    async def _bookies(self, name: str, bookies: list[Bookie]) -> list[Bookie]:
        self.peers += bookies
        self.start_seconds[name] = [await bookie.start() for bookie in bookies]
        return bookies

    def _side(self, name: str, client: Driver, bookies: list[Bookie], *, batch_reads: bool = True) -> None:
        self.peers.append(client)
        self.sides[name] = Side(name, client, bookies, batch_reads=batch_reads)

    def memory(self) -> dict[str, dict[str, float]]:
        return {
            side.name: {
                "client": resident_mb(side.client.pid),
                "bookie": sum(resident_mb(bookie.pid) for bookie in side.bookies) / len(side.bookies),
            }
            for side in self.sides.values()
        }
