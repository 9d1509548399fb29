"""Streams for tests: what is stored of them, and a metadata store that fails as it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.metadata.store import Change
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import StreamInfo
from tallystick.errors import MetadataUnavailable, MetadataUncertain

NAME = "tenant/ns/persistent/topic"
RAW = StreamSettings(entry_format="raw")
ON_ALL: Any = {
    "entry_format": "raw",
    "ensemble": 4,
    "write_quorum": 4,
    "ack_quorum": 2,
}  # the first entry connects to all

REFUSE, LOSE, DOUBT = "nothing is changed", "the response is lost", "nothing is changed, and nobody knows"


async def read_list(cluster: SmallCluster, stream: str = NAME) -> StreamInfo:
    bk = cluster.client(99)
    return (await bk.stream_context.catalog.read(stream, synced=True)).value


async def read_all(cluster: SmallCluster, stream: str = NAME) -> list[tuple[str, bytes]]:
    """All entries up to the LACs, by the list, with their positions."""
    bk, entries = cluster.client(99), []
    for listed in (await read_list(cluster, stream)).ledgers:
        async with bk.open_ledger(listed.ledger) as reader:
            entries += [(f"{listed.ledger}:{entry.id}", bytes(entry.data)) async for entry in reader]
    return entries


async def payloads(cluster: SmallCluster) -> list[bytes]:
    """The same without their positions."""
    return [data for _, data in await read_all(cluster)]


async def notes(cluster: SmallCluster, stream: str = NAME) -> list[int]:
    """The ledgers that come or go."""
    return await cluster.client(99).stream_context.catalog.going(stream)


async def ledgers(cluster: SmallCluster) -> list[int]:
    """All ledgers that there are."""
    return [ledger async for ledger in cluster.driver.ledgers()]


class StoreFaults:
    """Stands before the store of one client, or another ``store``.

    ``script`` says of each change what becomes of it: None, or REFUSE, LOSE, DOUBT. While it ``is_away`` no call does
    anything.
    """

    def __init__(self, bk: BookKeeper, monkeypatch: pytest.MonkeyPatch, store: Any = None) -> None:
        self.is_away = False
        self.script: Callable[[Sequence[Change]], str | None] = lambda changes: None
        self.changes: list[Sequence[Change]] = []
        self._store: Any = store or bk.context.driver.store
        self._change = self._store.change
        monkeypatch.setattr(self._store, "change", self.change)
        for name in ("get", "get_many", "children", "sync", "create_next"):
            monkeypatch.setattr(self._store, name, self._unless_away(getattr(self._store, name)))

    def _unless_away(self, call: Any) -> Any:
        async def called(*arguments: Any, **more: Any) -> Any:
            if self.is_away:
                raise MetadataUnavailable("the metadata is away")
            return await call(*arguments, **more)

        return called

    async def change(self, *changes: Change) -> None:
        if self.is_away:
            raise MetadataUnavailable("the metadata is away")
        self.changes.append(changes)
        fault = self.script(changes)
        if fault == REFUSE:
            raise MetadataUnavailable("the metadata is away")
        if fault != DOUBT:
            await self._change(*changes)
        if fault in (LOSE, DOUBT):
            raise MetadataUncertain("the response was lost")


def of_list(changes: Sequence[Change]) -> bool:
    """Whether it writes the list of a stream."""
    return changes[0].path.startswith("/managed-ledgers/")


def once(fault: str, when: Callable[[Sequence[Change]], bool]) -> Callable[[Sequence[Change]], str | None]:
    """A script of one fault."""
    faults = [fault]
    return lambda changes: faults.pop() if faults and when(changes) else None
