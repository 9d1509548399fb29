"""What clients and bookies ask of a cluster's metadata; ``cluster.py`` answers it over any store.

Compare-and-set is linearizable; a listing that could not be read whole raises, it never looks complete (a bookie
deletes what it does not find there). All methods raise MetadataUnavailable when the service cannot be reached, and
MetadataUncertain when a change was asked for and the response did not come: it may have been made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from tallystick.bookkeeper.metadata.store import Create, Creation, MetadataStore, Version, Watch, Znode
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, LedgerId, LedgerMetadata, LedgerState

T = TypeVar("T")


@dataclass(frozen=True)
class Versioned(Generic[T]):
    """A value and the version to name when it is replaced. ``creation`` is that of its node, where a name may come
    again with the versions of the one before."""

    value: T
    version: Version
    creation: Creation | None = None


@dataclass(frozen=True)
class Moment:
    """``sync`` returns it. Reads between two equal moments saw everything that was stored before the first of them:
    the cluster was the same, and so was the connection.

    Nothing that the service has was made after ``newest``. Whoever knows of a later creation has seen metadata that is
    lost: what is there now was restored from an older copy.
    """

    instance: str
    generation: int  # of the connection: grows with each break
    newest: Creation = field(default=(1 << 63) - 1, compare=False)


@dataclass(frozen=True)
class Record:
    """The metadata of a ledger as a read has it. ``state`` is None when the stored bytes cannot be read."""

    state: LedgerState | None
    creation: Creation


@dataclass(frozen=True)
class Records:
    """The record of each ledger as it was between two moments; None where there is none."""

    start: Moment
    by_ledger: Mapping[LedgerId, Record | None]
    end: Moment


@dataclass(frozen=True)
class RegisteredBookies:
    """The registered bookies."""

    writable: Mapping[BookieId, BookieInfo] = field(default_factory=dict)
    read_only: Mapping[BookieId, BookieInfo] = field(default_factory=dict)

    @cached_property
    def sorted_writable(self) -> tuple[BookieId, ...]:
        """Returns the ids of the writable bookies, sorted."""
        return tuple(sorted(self.writable))

    def find(self, bookie: BookieId) -> BookieInfo | None:
        return self.writable.get(bookie) or self.read_only.get(bookie)


@dataclass(frozen=True)
class BookiePresence:
    """Who a bookie is, and where clients reach it."""

    creation: Creation | None  # of its cookie, as ``bookie_creation`` says
    address: tuple[str, int] | None  # by its registration; None if it is not registered, or that names none


class BookieRegistration(Protocol):
    """A bookie's place in the list of the living, kept up until it is closed or lost."""

    loss: asyncio.Event  # set when the service forgot us: another may hold the id; stop serving
    failure: Exception | None  # why it is lost, if not because another holds the id

    @property
    def is_reached(self) -> bool:
        """Returns whether the service is connected now. Without that the registration may expire unnoticed."""
        ...

    async def set_read_only(self, read_only: bool) -> None:
        """Move the bookie to the other list; it is in both for a moment, and never in none."""
        ...

    async def set_info(self, info: BookieInfo) -> None:
        """Replace what the list says of the bookie. Raises MetadataConflict when another process has the place."""
        ...

    async def close(self) -> None: ...


class MetadataDriver(Protocol):
    """See the module. A watch's callback runs on the event loop, at least once after each change, without argument:
    read again."""

    @property
    def store(self) -> MetadataStore:
        """Returns the store under it, for whoever keeps more than a cluster there."""
        ...

    @property
    def root(self) -> str:
        """Returns the path below which the ledgers are."""
        ...

    async def create_ledger(
        self,
        metadata: LedgerMetadata,
        ledger: LedgerId | None = None,
        *,
        beside: Callable[[LedgerId], Sequence[Create]] = lambda ledger: (),
    ) -> Versioned[LedgerId]:
        """Store a new ledger under a new unique id, or the given one. Raises LedgerExists for a given one that exists.

        ``beside``: the nodes that are made in one with a ledger of a new id, or neither is.

        An own create whose response was lost is recognised by its ``ctoken`` and is a success.
        """
        ...

    async def skip_ids(self, ledgers: Collection[LedgerId]) -> None:
        """Give none of these ids to a new ledger: bookies have them of ledgers that the metadata lost. Raises
        MetadataError: call it again."""
        ...

    async def read_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata]:
        """Returns a ledger's metadata. Raises NoSuchLedger."""
        ...

    async def read_ledgers(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Znode]:
        """Returns the metadata of those ledgers that exist, as they are stored (``wire/metadata.py``).

        That takes far less time than one by one; name some thousands at once at most.
        """
        ...

    async def write_ledger(
        self, ledger: LedgerId, metadata: LedgerMetadata, version: Version, *, absent: Collection[BookieId] = ()
    ) -> Version:
        """Replace the metadata, while none of the bookies that are ``absent`` is registered. Returns the new version.

        Raises MetadataConflict when the stored version differs, or one of these bookies is back; NoSuchLedger.
        """
        ...

    async def delete_ledger(self, ledger: LedgerId) -> None:
        """Delete a ledger, whatever its version. Raises NoSuchLedger."""
        ...

    def ledgers(self) -> AsyncIterator[LedgerId]:
        """Yields all ledger ids, ascending. Raises MetadataError rather than leave any out."""
        ...

    async def sync(self) -> Moment:
        """Catch up with the service: reads that follow on this connection see all that was stored before this call.

        A follower of ZooKeeper may lag; SQLite and memory never do. Raises MetadataError when another file took the
        place of the SQLite file that is open here: that is another cluster.
        """
        ...

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        """Those of the creations that the metadata lost, as it was restored from an older copy: see the store's. Name
        some thousands at once at most."""
        ...

    async def look_up(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Record | None]:
        """Returns the record of each ledger, None where there is none, as new as the connection: see ``look``."""
        ...

    async def look(self, ledgers: Sequence[LedgerId]) -> Records:
        """Returns ``look_up`` between two ``sync``: one read, of one moment, where the service has such a read."""
        ...

    def watch_ledger(self, ledger: LedgerId, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after the metadata was created, written or deleted."""
        ...

    async def bookies(self) -> RegisteredBookies: ...

    def watch_bookies(self, changed: Callable[[], None]) -> Watch: ...

    async def register(
        self,
        bookie: BookieId,
        info: BookieInfo,
        *,
        read_only: bool = False,
        replace: bool = False,
        joined: Creation | None = None,
        since: Version | None = None,
    ) -> BookieRegistration:
        """List a bookie. ``replace``: take over its own stale registration at once (the caller holds the folder lock
        and has checked the cookie, so the old process is dead); otherwise wait up to the session time for it to vanish,
        then raise MetadataConflict.

        ``joined``: the creation of the cookie that was checked. With another one, or none, it was taken out since: it
        is not listed, or no longer. Else each time that it comes into a list is a version of its cookie: who read that
        knows that it was not there since. None: the cookie is not looked at. ``since``: the version that it must have
        when the bookie is listed first."""
        ...

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        """Returns a bookie's cookie as of now (synced), None when it has none."""
        ...

    async def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        """Create (version None) or replace a cookie. Raises MetadataConflict."""
        ...

    async def delete_cookie(self, bookie: BookieId, version: Version, *beside: Create, is_down: bool = False) -> None:
        """Raises MetadataConflict when the stored version differs, or, with ``is_down``, the bookie is registered; one
        that is gone already is no error.

        ``beside`` is made with it, or not at all.
        """
        ...

    async def read_progress(self, bookie: BookieId) -> Versioned[bytes] | None:
        """Returns how far a bookie of ours said that its disk is, as of now (synced); None when it never did."""
        ...

    async def write_progress(self, bookie: BookieId, progress: bytes, version: Version | None) -> None:
        """Create (version None) or replace it; the version is then 0, or one more. Raises MetadataConflict."""
        ...

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        """Returns when the bookie's cookie was made, as of now (synced). Returns None when it has none.

        This is the identity of a bookie: an empty one that took over an id and an address has another.
        """
        ...

    async def bookie_presence(self, bookie: BookieId) -> BookiePresence:
        """Returns the identity of a bookie, and where it is registered, both as of now (synced)."""
        ...

    async def cookies(self) -> list[BookieId]:
        """Returns the ids of all bookies that have a cookie, sorted."""
        ...

    async def instance_id(self) -> str:
        """Returns the cluster's identity. Raises MetadataError when there is no cluster here."""
        ...

    async def init_cluster(self) -> str:
        """Make an empty cluster. Returns its instance id. Raises UsageError when one exists."""
        ...

    async def close(self) -> None: ...
