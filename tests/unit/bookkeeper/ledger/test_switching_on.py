"""Keys are switched on, changed and switched off in a cluster that works meanwhile: no append fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import tallystick
from support.bookies import SMALL
from support.keyed import KeyFiles
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time
NAMES = ("b0", "b1", "b2", "b3")


@dataclass
class Cluster:
    """Bookies that are restarted one by one with other settings."""

    uri: str
    folder: Path
    running: dict[str, Bookie] = field(default_factory=dict)

    async def start(self, name: str, security: SecuritySettings) -> None:
        home = str(self.folder / name)
        settings = BookieSettings(self.uri, (home,), (home,), port=0, bookie_id=name, security=security)
        self.running[name] = await start_bookie(settings, this_machine(), SMALL)

    async def roll(self, security: SecuritySettings) -> None:
        for name in NAMES:
            if name in self.running:
                await self.running.pop(name).stop()
            await self.start(name, security)
            await asyncio.sleep(0.3)

    def identities(self) -> set[str]:
        rows = [row for bookie in self.running.values() for row in bookie.authentication()]
        return {f"{row['identity']}{' (old)' if row.get('old secret') else ''}" for row in rows}


@asynccontextmanager
async def writing(uri: str, security: ClientSecurity | None) -> AsyncIterator[None]:
    """A client appends all the time; at the end all that it appended is there."""
    settings = ClientSettings(security=security, quarantine_s=0.5)
    async with tallystick.connect(uri, settings=settings) as bk:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        goes_on, count = True, 0

        async def append() -> None:
            nonlocal count
            while goes_on:
                assert await writer.append(b"%d" % count) == count
                count += 1
                await asyncio.sleep(0.002)

        task = asyncio.create_task(append())
        try:
            yield
            goes_on = False
            await task  # which raises if an append failed
            await writer.close()
            async with bk.open_ledger(writer.id) as reader:
                assert [entry.data async for entry in reader.read(0, count - 1)] == [b"%d" % at for at in range(count)]
            assert count > 50
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.mark.rule("N5")
@pytest.mark.timeout(120)
async def test_n5_keys_are_switched_on_and_changed_in_a_cluster_that_works(tmp_path: Path) -> None:
    keys, uri = KeyFiles.make(tmp_path / "keys"), "memory://switching-on"
    await ClusterMetadata(MemoryStore("switching-on")).init_cluster()
    cluster = Cluster(uri, tmp_path)
    for name in NAMES:
        await cluster.start(name, SecuritySettings())
    users = keys.users("live.toml", bookkeeper=("the first",))
    given: dict[str, Any] = {"mechanisms": ("sasl", "scram-sha-256"), "users_file": users}
    both = keys.bookie_settings(**given, tls_required=False, allow_anonymous=True)
    closed = keys.bookie_settings(**given)
    first = keys.client_settings("the first")
    permissive = replace(first, tls_trust=None, auth_required=False)
    try:
        async with writing(uri, None), writing(uri, permissive):  # clients send keys, and accept none
            await cluster.roll(both)  # bookies take both
            await asyncio.sleep(0.5)
            assert cluster.identities() >= {"anonymous", "user bookkeeper"}
        async with writing(uri, first):
            await cluster.roll(closed)  # keys are required
            keys.users("live.toml", bookkeeper=("the second", "the first"))  # two at once
            async with writing(uri, keys.client_settings("the second")):
                await cluster.roll(closed)
                assert cluster.identities() == {"user bookkeeper", "user bookkeeper (old)"} or cluster.identities() == {
                    "user bookkeeper (old)"
                }
        async with writing(uri, keys.client_settings("the second")):
            keys.users("live.toml", bookkeeper=("the second",))
            await cluster.roll(closed)
            assert cluster.identities() == {"user bookkeeper"}
        async with tallystick.connect(uri, settings=ClientSettings(security=first, no_quorum_s=1.0)) as old:
            writer = await old.create_ledger(3, write_quorum=3, ack_quorum=2)
            with pytest.raises(tallystick.TallyError):
                await writer.append(b"with the old secret")
    finally:
        for bookie in cluster.running.values():
            await bookie.stop()
