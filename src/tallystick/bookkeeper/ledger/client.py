"""The client of a cluster: create, open, list, delete ledgers (Q1, Q2).

The coordination service is asked for metadata and ids, the bookies for entries; creating a ledger needs no bookie.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Self

from tallystick.bookkeeper.ledger.absences import AbsentBookies
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.delete import fence_all, holders
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.disk_weights import FreeDisks
from tallystick.bookkeeper.ledger.locations import Locations
from tallystick.bookkeeper.ledger.metrics import numbers
from tallystick.bookkeeper.ledger.password import with_password
from tallystick.bookkeeper.ledger.peer_times import SlowBookie
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.quarantine import Quarantine
from tallystick.bookkeeper.ledger.racks import Racks, rack_sources
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.ledger.recover import recover as recover_ledger
from tallystick.bookkeeper.ledger.restorer import Restorer
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.ledger.writers import Writers
from tallystick.bookkeeper.metadata.ctoken import check_ledger_id
from tallystick.bookkeeper.metadata.driver import MetadataDriver, RegisteredBookies, Versioned
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.wire.lost_runs import LOST_KEY
from tallystick.bookkeeper.wire.values import (
    AVOIDED_KEY,
    MAX_ID,
    NO_CUSTOM,
    BookieId,
    DigestType,
    Fragment,
    LedgerId,
    LedgerMetadata,
)
from tallystick.errors import LedgerExists, MetadataError, MetadataRefused, MetadataUnavailable, UsageError
from tallystick.runtime.arguments import instance, mapping, payload_bytes, text, whole
from tallystick.runtime.loops import check_loop
from tallystick.runtime.opening import Opening
from tallystick.runtime.outside import Outside

_MOST_BOOKIES = 65_536  # of an ensemble, whose places are made before the cluster is asked how many bookies it has


class LedgerClient:
    """The part of a client that knows ledgers alone; on one running event loop. ``close`` it, or use it with ``async
    with``. What users get is ``stream/client.py``."""

    def __init__(self, driver: MetadataDriver, outside: Outside, settings: ClientSettings) -> None:
        clock, random, events = outside.clock, outside.random, outside.events
        self._directory = BookieDirectory(driver)
        bookies = BookieClient(
            outside, self._directory.resolve, settings, identify=driver.bookie_presence, offers=self._directory.offers
        )
        self._directory.on_change(bookies.registrations_changed)
        self._directory.on_read(bookies.registered)
        self._restorer = Restorer(bookies, self._directory, clock, events)
        self._context = LedgerContext(driver, bookies, clock, random, settings, events)
        quarantine = Quarantine(clock, settings.quarantine_s)
        if bookies.times is not None:
            bookies.times.report = self._slow
        every_s, most = settings.disk_weights_s, settings.max_disk_weight
        self._disks = FreeDisks(self._free_bytes, clock, random, every_s=every_s, most=most)
        self._racks = Racks(rack_sources(settings, driver.store), clock, events)
        locations = Locations(self._racks)
        self._placement = Placement(self._directory, random, quarantine, settings.policy, locations, self._disks)
        self._writers = Writers(self._context, self._placement, self._restorer)
        most_s = settings.absent_bookie_s
        self._absences = AbsentBookies(
            driver, self._directory, clock, random, events, writers=self._writers.open, most_s=most_s
        )
        self._closing: asyncio.Future[None] | None = None

    @property
    def context(self) -> LedgerContext:
        """The parts of the client that its handles use."""
        return self._context

    @property
    def placement(self) -> Placement:
        """Who chooses the bookies of its ledgers."""
        return self._placement

    def create_ledger(
        self,
        ensemble: int = 3,
        *,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest: str | DigestType = "crc32c",
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger_id: LedgerId | None = None,
        accept_silent_bookies: bool = False,
        entry_ids: str = "counted",
        deferred_sync: bool = False,
        beside: Callable[[LedgerId], Sequence[Create]] | None = None,
    ) -> Opening[LedgerWriter]:
        """Make a ledger: ``async with bk.create_ledger() as writer`` or ``writer = await bk.create_ledger()``.

        Without ``ledger_id`` it gets a new unique id. Raises UsageError, NotEnoughBookies, MetadataError; for a given
        id LedgerExists, also while bookies still hold entries of a deleted ledger with this id, or may hold them
        because they do not answer. The latter are let pass with ``accept_silent_bookies``, and this ledger never uses
        them. An id may be used again once nobody writes or recovers the older ledger any more.

        ``entry_ids``: "counted" from 0 in the order of the appends, or "given" by the caller with each of them.

        ``deferred_sync``: entries are acknowledged before they are durable, and confirmed by ``writer.force()`` alone.
        It needs bookies that speak version 3, and a bookie that fails ends the writer.

        ``beside``: the nodes of the metadata that are made in one with a ledger of a new id, so that there is both or
        neither.
        """

        chosen_id = None if ledger_id is None else whole(ledger_id, "ledger_id", most=MAX_ID)
        if chosen_id is not None and beside is not None:
            raise UsageError("beside is for a ledger of a new id", ledger_id=chosen_id)
        instance(accept_silent_bookies, bool, "accept_silent_bookies")
        if entry_ids not in ("counted", "given"):
            raise UsageError('entry_ids is "counted" or "given"', given=entry_ids)
        takes_ids = entry_ids == "given"
        if instance(deferred_sync, bool, "deferred_sync"):
            self._context.bookies.require_v3()
        template = LedgerMetadata(
            ensemble_size=whole(ensemble, "ensemble", least=1, most=_MOST_BOOKIES),
            write_quorum=whole(write_quorum, "write_quorum", least=1),
            ack_quorum=whole(ack_quorum, "ack_quorum", least=1),
            fragments=(Fragment(0, ("",) * ensemble),),
            digest_type=DigestType.parse(digest),
            password=payload_bytes(password, "a password"),
            custom=_custom(custom_metadata),
        )

        async def create() -> LedgerWriter:
            self._require_open()
            clock, random = self._context.clock, self._context.random
            metadata = replace(template, ctime_ms=clock.wall_ms(), ctoken=random.getrandbits(63))
            if chosen_id is not None and (silent := await self._require_unused(chosen_id, accept_silent_bookies)):
                metadata = metadata.avoiding(silent)
            return await self._create(metadata, chosen_id, beside, takes_ids=takes_ids, deferred_sync=deferred_sync)

        return Opening(create, "bk.create_ledger(…)")

    async def _create(
        self,
        sizes_checked: LedgerMetadata,
        ledger_id: LedgerId | None,
        beside: Callable[[LedgerId], Sequence[Create]] | None,
        *,
        takes_ids: bool,
        deferred_sync: bool,
    ) -> LedgerWriter:
        ensemble = await self._placement.new_ensemble(Striping.of(sizes_checked), never=sizes_checked.avoided)
        identities = await self._placement.identities(ensemble)  # before anybody can find, recover and close the ledger
        metadata = replace(sizes_checked, fragments=(Fragment(0, ensemble),))
        created = await self._context.driver.create_ledger(metadata, ledger_id, beside=beside or _nothing)
        self._context.events.emit("ledger created", ledger=created.value, ensemble=ensemble)
        stored = Versioned(metadata, created.version)
        writer = LedgerWriter(
            self._writers, created.value, stored, identities, takes_ids=takes_ids, deferred_sync=deferred_sync
        )
        self._writers.opened(writer)
        self._absences.opened()
        return writer

    async def _require_unused(self, ledger: LedgerId, accept_silent: bool) -> tuple[BookieId, ...]:
        """Return the bookies that may hold an older ledger of this id. Raises LedgerExists, MetadataError."""
        driver = self._context.driver
        if (await driver.look_up([ledger]))[ledger] is not None:
            raise LedgerExists(ledger=ledger)
        registered = await self._directory.current()
        joined = {*registered.writable, *registered.read_only, *await driver.cookies()}
        ledger_holders = await holders(self._context, ledger, sorted(joined))
        if ledger_holders.bookies:
            raise LedgerExists(
                "bookies still hold a deleted ledger of this id; they give it up when they have collected, in minutes",
                ledger=ledger,
                bookies=ledger_holders.bookies,
            )
        if ledger_holders.silent_bookies and not accept_silent:
            raise LedgerExists(
                "bookies that do not answer may still hold a deleted ledger of this id: start them, or forget those "
                "that are gone for good (tally bookie forget), or accept them (accept_silent_bookies)",
                ledger=ledger,
                bookies=ledger_holders.silent_bookies,
            )
        return ledger_holders.silent_bookies

    def open_ledger(
        self, ledger: LedgerId, *, password: bytes = b"", digest: str | DigestType = "crc32", recover: bool = False
    ) -> Opening[LedgerReader]:
        """Open a ledger to read it: ``async with bk.open_ledger(7) as reader``, or ``await`` it.

        One that is written is read up to its LAC and never fenced, unless ``recover``: that fences it, finds its end
        and closes it; its writer can append no more (Q10 to Q16). The stored digest type is the one that counts;
        ``digest`` is that of a ledger whose metadata store none (format 1, of the first clients). Raises NoSuchLedger,
        Unauthorized (before any bookie is asked), Unavailable, MetadataError; with ``recover`` RecoveryIncomplete.
        """

        id, key, kind = check_ledger_id(ledger), payload_bytes(password, "a password"), DigestType.parse(digest)
        instance(recover, bool, "recover")

        async def open_() -> LedgerReader:
            self._require_open()
            if not recover:
                return await LedgerReader.open(self._context, id, password=key, digest=kind)
            versioned = await self._context.driver.read_ledger(id)
            with_password(id, versioned.value, key)
            recovered = await recover_ledger(self._context, self._placement, id, versioned, key, digest=kind)
            opened = Versioned(with_password(id, recovered.value, key, kind), recovered.version)
            return LedgerReader(self._context, id, opened)

        return Opening(open_, "bk.open_ledger(…)")

    async def delete_ledger(self, ledger: LedgerId) -> None:
        """Forget a ledger; bookies give its space back later. Nobody is asked whether it is still written or read.

        Its bookies are fenced before, so that its writer is refused from now on; one that cannot be reached within two
        seconds does not hinder it. Raises NoSuchLedger, MetadataError; MetadataUnavailable and not MetadataUncertain:
        nothing was done.
        """
        self._require_open()
        unfenced: list[BookieId] = []
        try:
            versioned = await self._context.driver.read_ledger(ledger)
            unfenced = await fence_all(self._context, ledger, versioned.value)
        except (MetadataUnavailable, MetadataRefused):  # who the bookies are can be asked again, or by who may
            raise
        except MetadataError:  # what is stored names no bookies that anybody could read
            pass
        await self._context.driver.delete_ledger(ledger)
        self._context.events.emit("ledger deleted", ledger=ledger, unfenced=unfenced)

    async def ledger_metadata(self, ledger: LedgerId) -> LedgerMetadata:
        """Return the stored metadata of a ledger. Raises NoSuchLedger, MetadataError."""
        self._require_open()
        return (await self._context.driver.read_ledger(ledger)).value

    async def bookies(self) -> RegisteredBookies:
        """Return the registered bookies. Raises MetadataError."""
        self._require_open()
        return await self._context.driver.bookies()

    def ledgers(self) -> AsyncIterator[LedgerId]:
        """List the ids of all ledgers, ascending. Raises MetadataError rather than leaving any out."""
        self._require_open()
        return self._context.driver.ledgers()

    def _slow(self, slow: SlowBookie) -> None:
        self._context.bookies.counts.slow_bookies += 1
        if self._placement.quarantine.add(slow.bookie):
            seconds, peers_seconds = round(slow.seconds, 3), round(slow.peers_seconds, 3)
            self._context.events.emit("bookie slow", bookie=slow.bookie, seconds=seconds, peers_seconds=peers_seconds)

    async def _free_bytes(self, bookie: BookieId) -> int:
        return (await self._context.bookies.bookie_space(bookie)).free_bytes

    def degraded(self) -> dict[LedgerId, tuple[BookieId, ...]]:
        """Return the ledgers that this client now writes without some of their bookies, and which those are."""
        return {writer.id: writer.missing_bookies for writer in self._restorer.writers}

    @property
    def degraded_total(self) -> int:
        """How often a writer of this client lost bookies that nothing could replace, and went on."""
        return self._restorer.joined

    def metrics(self) -> dict[str, float]:
        """Return what this client counted since it was made, by the names of docs/metrics.md, with their labels."""
        return numbers(self)

    async def close(self) -> None:
        """End all connections. Writers that are still open stop as if the process died; their ledgers stay open.

        Repeated calls are one. It goes on when its caller is cancelled.
        """
        check_loop(self._context.loop)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._writers.close()
        await self._absences.close()
        await self._restorer.close()
        await self._disks.close()
        await self._racks.close()
        self._directory.close()
        await self._context.bookies.close()
        await self._context.driver.close()

    def __repr__(self) -> str:
        state = "open" if self._closing is None else "closed"
        return f"<{type(self).__name__} {state}, {len(self._writers)} active writers>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _require_open(self) -> None:
        check_loop(self._context.loop)
        if self._closing is not None:
            raise UsageError("this client is closed")


def _nothing(ledger: LedgerId) -> Sequence[Create]:
    return ()


def _custom(custom: Mapping[str, bytes] | None) -> Mapping[str, bytes]:
    if not custom:
        return NO_CUSTOM
    for name in (AVOIDED_KEY, LOST_KEY):
        if name in mapping(custom, "custom_metadata"):
            raise UsageError(f"{name} in custom_metadata is set by the client itself")
    return MappingProxyType(
        {
            text(name, "a name in custom_metadata"): payload_bytes(value, "a value in custom_metadata")
            for name, value in custom.items()
        }
    )
