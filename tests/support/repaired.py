"""A small cluster whose bookies have cookies, and what repairs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.machines import machine
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair.autorecovery import AutoRecovery
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.runtime.events import Events


class RepairedCluster(SmallCluster):
    """A small cluster whose bookies have cookies, and what repairs it."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = Underreplication(self.driver)
        self._running: list[AutoRecovery] = []

    async def started(self, count: int) -> RepairedCluster:
        await self.start(count)
        for name in self.bookies:
            await self.driver.write_cookie(name, b"", None)
        await self.tree.prepare()
        return self

    def repair(self, name: str = "r0", **settings: Any) -> AutoRecovery:
        """Begin an auditor and a replicator, with a session of their own."""
        outside = machine(Events(self.events.append))
        made = AutoRecovery(ClusterMetadata(MemoryStore(self.name)), name, RepairSettings(**settings), outside)
        self._running.append(made)
        return made

    async def written(self, count: int = 30, *, close: bool = True, **sizes: Any) -> int:
        """Write a ledger. Returns its id."""
        client = self.client(degraded_writes=False, absent_bookie_s=0.0)
        writer = await client.create_ledger(**({"ensemble": 3, "write_quorum": 2, "ack_quorum": 2} | sizes))
        for number in range(count):
            await writer.append(b"%d of %d" % (number, writer.id) * 5)
        if close:
            await writer.close()
        return writer.id

    async def limbo(self, name: str, number: str) -> None:
        """Register that so many ledgers of a bookie are in limbo."""
        await self._tell(name, limbo=number)

    async def on_machine(self, machine: str, *names: str) -> None:
        """Register that these bookies share a machine."""
        for name in names:
            await self._tell(name, machine=machine)

    async def _tell(self, name: str, **properties: str) -> None:
        info = (await self.driver.bookies()).writable[name]
        await self._registrations[name].set_info(replace(info, properties=properties))

    async def set_read_only(self, name: str) -> None:
        """Register a bookie as one that takes no new entries."""
        await self._registrations[name].set_read_only(True)

    async def metadata(self, ledger: int) -> LedgerMetadata:
        return (await self.driver.read_ledger(ledger)).value

    async def marks(self) -> list[int]:
        return sorted([ledger async for ledger in self.tree.marks()])

    async def require_whole(self, ledger: int) -> LedgerMetadata:
        """Each entry is, with the same bytes, on each registered bookie that the metadata says."""
        metadata = await self.metadata(ledger)
        assert metadata.is_closed
        registered = (await self.driver.bookies()).writable
        for entry in range(metadata.last_entry + 1):
            ensemble = metadata.ensemble_of(entry)
            holders = [ensemble[(entry + i) % len(ensemble)] for i in range(metadata.write_quorum)]
            assert set(holders) <= set(registered), (entry, holders)
            stored = {bytes(self.bookies[holder].entries[ledger, entry]) for holder in holders}
            assert len(stored) == 1, f"entry {entry} differs"
        assert all(len(set(fragment.bookies)) == len(fragment.bookies) for fragment in metadata.fragments)
        return metadata

    def heard(self, kind: str) -> list[dict[str, Any]]:
        return [event.fields for event in self.events if event.kind == kind]

    async def close(self) -> None:
        for running in self._running:
            assert not running.failure.done(), running.failure.result()
            await running.close()
        await super().close()


def flipped(entry: bytes) -> bytes:
    """Return an entry with a bit of its payload flipped."""
    return bytes(entry[:-1]) + bytes([entry[-1] ^ 1])
