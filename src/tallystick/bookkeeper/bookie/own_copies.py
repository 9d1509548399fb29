"""What repairs the copies that a bookie has sees of it. It reads other bookies, so it is above both (``Repairs``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.damages import Damages
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.service import AddEntryRequest, AfterLook, Service
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Creation, Znode
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.errors import MetadataUnavailable, StorageError, Unauthorized, Unavailable
from tallystick.runtime.outside import Outside
from tallystick.runtime.pace import Pace
from tallystick.runtime.worker import Worker


class _Heard:
    """Hear once of the committer: a commit is synced, or it has room again."""

    peer = "itself"

    def __init__(self) -> None:
        self.done = asyncio.get_running_loop().create_future()

    def deliver(self, responses: Sequence[bytes]) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def resume(self) -> None:
        self.deliver(())


class OwnCopies:
    """Store entries in place; on the loop of the bookie."""

    def __init__(
        self,
        bookie: BookieId,
        driver: MetadataDriver,
        outside: Outside,
        *,
        instance: str,
        pace: Pace,
        storage: Storage,
        service: Service,
        committer: Committer,
        worker: Worker,
        counts: Counts,
        look_at: Callable[[LedgerId], None],
        changed: Callable[[], None],
    ) -> None:
        """``look_at`` orders a look at a ledger's metadata; ``changed`` hears that ledgers have left limbo, or entries
        were repaired. ``pace`` bounds what is fetched, ``instance`` is the cluster."""
        self.bookie, self.driver, self.outside = bookie, driver, outside
        self.instance, self.pace, self.counts = instance, pace, counts
        self._storage, self._service, self._committer, self._worker = storage, service, committer, worker
        self._look_at, self._changed = look_at, changed

    @property
    def damages(self) -> Damages:
        """The entries that are stored here and cannot be read, as far as somebody noticed."""
        return self._storage.damages

    async def metadata(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Znode | None]:
        """Read the metadata of ledgers as of now. Raises MetadataError."""
        began = await self.driver.sync()
        nodes = await self.driver.read_ledgers(ledgers)
        if await self.driver.sync() != began or began.instance != self.instance:
            raise MetadataUnavailable("the connection to the metadata broke, or it is another cluster's")
        return {ledger: nodes.get(ledger) for ledger in ledgers}

    def is_stored(self, ledger: LedgerId) -> bool:
        identity = self._storage.identities.identity(ledger)
        return identity is not None and not identity.deleted

    def read(self, ledger: LedgerId, entry: EntryId) -> bytes | None:
        """Read an entry from the disk, or from memory if it is there alone. Returns None if it cannot be read."""
        code, data = self._storage.read_from_disk(ledger, entry)
        return data if code == Code.OK else None

    def mended(self, ledger: LedgerId, entries: Sequence[EntryId]) -> None:
        """These can be read again, or nobody needs them any more."""
        self._storage.settle(ledger, entries)
        self._changed()

    def identify(self, ledger: LedgerId, creation: Creation) -> None:
        """Take the creation of a ledger's metadata. Raises Unavailable while what is stored here is another ledger's,
        which had the id before: it is deleted first."""
        identity = self._storage.identities.identity(ledger)
        if identity is not None and (identity.deleted or identity.creation not in (UNKNOWN, creation)):
            self._look_at(ledger)
            raise Unavailable("another ledger had this id here, and is deleted first", ledger=ledger)
        self._storage.identities.note(ledger, creation)

    async def store(self, ledger: LedgerId, key: bytes, entries: Sequence[tuple[EntryId, bytes]]) -> None:
        """Store entries, each with its header and digest, and wait until they are synced.

        Raises Unavailable while the disk takes none, Unauthorized if the ledger is stored under another key,
        StorageError.
        """
        while self._committer.congested:
            room = _Heard()
            self._committer.block(room)
            await room.done
        for entry, body in entries:
            # The metadata was read just now, so that nothing waits for another look.
            add = AddEntryRequest(ledger, entry, key, body, recovery=True, high_priority=True)
            response = self._service.add(add, Verdict.ADMIT)
            assert not isinstance(response, AfterLook), "it came with a verdict"
            if response.code == Code.UNAUTHORIZED:
                raise Unauthorized("it is stored here with another password", ledger=ledger)
            if response.code == Code.READ_ONLY:
                raise Unavailable("the disk takes no entries", ledger=ledger)
            if response.code != Code.OK:
                raise StorageError(f"an entry was not taken: {response.code.name}", ledger=ledger, entry=entry)
        await self._synced()

    async def _synced(self) -> None:
        durable = _Heard()
        self._committer.hold(durable, [b""], self._storage.newest_commit)
        await durable.done
