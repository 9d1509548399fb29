"""Changes to a ledger's metadata, each a compare-and-set that is decided again when another client was first.

::

    OPEN ──(writer: close)──────────────────────────▶ CLOSED      final: nothing changes it any more
      └──(recovery: begin)──▶ IN_RECOVERY ──(close)──────▲        the writer that finds this state withdraws

Follows the original's ``MetadataUpdateLoop``; here a writer never closes a ledger that is being recovered, and a write
whose response was lost is looked for and repeated.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.driver import MetadataDriver, Versioned
from tallystick.bookkeeper.wire.values import (
    BookieId,
    Ensemble,
    EntryId,
    Fragment,
    LedgerId,
    LedgerMetadata,
    LedgerState,
)
from tallystick.errors import (
    LedgerFenced,
    MetadataConflict,
    MetadataUnavailable,
    MetadataUncertain,
    NoSuchLedger,
    NotEnoughBookies,
    RecoveryIncomplete,
)

VersionedMetadata = Versioned[LedgerMetadata]

ATTEMPTS = 3  # to make one change while its responses are lost


@dataclass(frozen=True)
class Requirement:
    """What must be so when a change is made, be it the repetition of one whose response was lost long ago: ``check``
    raises before each write unless it is, and ``absent`` bookies are not registered in the very step of the write."""

    check: Callable[[], Awaitable[None]]
    absent: Collection[BookieId] = ()


async def _nothing() -> None:
    """Require nothing."""


ALWAYS = Requirement(_nothing)


def _has_end(new_metadata: LedgerMetadata, metadata: LedgerMetadata) -> bool:
    """Return whether this write of the newest fragment or the end was made: others may have changed older fragments
    since."""
    written, stored = (
        (each.fragments[-1], each.state, each.last_entry, each.length) for each in (new_metadata, metadata)
    )
    return written == stored


async def _update(
    driver: MetadataDriver,
    ledger: LedgerId,
    versioned: VersionedMetadata,
    change: Callable[[LedgerMetadata], Awaitable[LedgerMetadata | None]],
    *,
    is_made: Callable[[LedgerMetadata, LedgerMetadata], bool] = _has_end,
    requirement: Requirement = ALWAYS,
) -> VersionedMetadata:
    """Store what ``change`` makes of the newest metadata, nothing if that is None.

    When the response to a write is lost, what is stored decides: where nothing has changed the very same write is
    repeated (of writes that name one version at most one is made), what it would have stored is a success, and anything
    else is decided anew. Raises MetadataUncertain when a write may have been made all the same, and never only because
    something could not be read.
    """
    doubtful_writes: list[MetadataUncertain] = []  # the responses of these writes
    with _doubts(doubtful_writes):
        new_metadata = await change(versioned.value)
    while new_metadata is not None:
        with _doubts(doubtful_writes):
            await requirement.check()
        try:
            version = await driver.write_ledger(ledger, new_metadata, versioned.version, absent=requirement.absent)
            return Versioned(new_metadata, version)
        except MetadataUncertain as error:
            doubtful_writes.append(error)
            if len(doubtful_writes) == ATTEMPTS:
                raise
        except MetadataUnavailable as error:
            raise doubtful_writes[0] if doubtful_writes else error from None
        except MetadataConflict:
            pass
        with _doubts(doubtful_writes):
            newest = await driver.read_ledger(ledger)
            if doubtful_writes and is_made(new_metadata, newest.value):
                return newest
            if newest.version != versioned.version:
                versioned, new_metadata = newest, await change(newest.value)
    return versioned


@contextlib.contextmanager
def _doubts(doubtful_writes: Sequence[MetadataUncertain]) -> Iterator[None]:
    """Raise MetadataUncertain for an error that changed nothing itself, if an earlier write may have been made."""
    try:
        yield
    except (MetadataUnavailable, NotEnoughBookies) as error:
        if doubtful_writes:
            raise doubtful_writes[0] from error
        if error.ambiguous:  # as a service that does not answer a read may say
            raise MetadataUnavailable(error.message, **error.fields) from error
        raise


async def change_ensemble(
    driver: MetadataDriver,
    ledger: LedgerId,
    versioned: VersionedMetadata,
    failed_bookies: Collection[BookieId],
    first: EntryId,
    replace: Callable[[Collection[BookieId], LedgerMetadata], Awaitable[Ensemble]],
) -> VersionedMetadata:
    """Store an ensemble without the failed bookies for the writer's entries from ``first`` on (Q8).

    The change is decided on the stored ensemble, not on the writer's: what others changed meanwhile stays. Raises
    LedgerFenced when the ledger is no longer open, NoSuchLedger, MetadataError, and what ``replace`` raises.
    """

    async def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        _require_open(ledger, metadata)
        if not any(bookie in failed_bookies for bookie in metadata.ensemble):
            return None
        return metadata.with_fragment(first, await replace(failed_bookies, metadata))

    return await _update(driver, ledger, versioned, change)


async def close_written(
    driver: MetadataDriver, ledger: LedgerId, versioned: VersionedMetadata, last_entry: EntryId, length: int
) -> VersionedMetadata:
    """Close a ledger as its writer. Raises LedgerFenced when another client recovers it or ended it elsewhere."""

    async def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        if metadata.is_closed and (metadata.last_entry, metadata.length) == (last_entry, length):
            return None
        _require_open(ledger, metadata)
        return metadata.closed(last_entry, length)

    return await _update(driver, ledger, versioned, change)


async def begin_recovery(driver: MetadataDriver, ledger: LedgerId, versioned: VersionedMetadata) -> VersionedMetadata:
    """Set the ledger IN_RECOVERY, where another recovery may be under way too, unless it is CLOSED already (Q13)."""

    async def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        return metadata.in_recovery() if metadata.state is LedgerState.OPEN else None

    return await _update(driver, ledger, versioned, change)


async def close_recovered(
    driver: MetadataDriver,
    ledger: LedgerId,
    base: VersionedMetadata,
    last_entry: EntryId,
    length: int,
    fragments: tuple[Fragment, ...],
    requirement: Requirement = ALWAYS,
) -> VersionedMetadata:
    """Store the end that recovery found, and its fragments (Q16). Who closes first wins; all others take that end.

    Raises RecoveryIncomplete when the newest fragment is no longer the one that was read, and what the ``requirement``
    raises.
    """

    async def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        if metadata.is_closed:
            return None
        if metadata.state is not LedgerState.IN_RECOVERY or metadata.fragments[-1] != base.value.fragments[-1]:
            raise RecoveryIncomplete("the metadata changed during recovery", ledger=ledger, state=metadata.state.name)
        for fragment in fragments:
            metadata = metadata.with_fragment(fragment.first, fragment.bookies)
        return metadata.closed(last_entry, length)

    return await _update(driver, ledger, base, change, requirement=requirement)


async def replace_bookie(
    driver: MetadataDriver,
    ledger: LedgerId,
    versioned: VersionedMetadata,
    replaced: Callable[[LedgerMetadata], LedgerMetadata | None],
    requirement: Requirement,
) -> VersionedMetadata:
    """Store what ``replaced`` makes of the newest metadata: another bookie has a copy of what one of a fragment had.

    Nothing is stored where it returns None. Unlike any other change it may be one of a CLOSED ledger, whose end stays,
    and of older fragments: a write whose response was lost was made only if all is as it was written. Raises what the
    ``requirement`` raises, too.
    """

    async def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        return replaced(metadata)

    return await _update(driver, ledger, versioned, change, is_made=operator.eq, requirement=requirement)


async def require_open(driver: MetadataDriver, ledger: LedgerId) -> None:
    """Return if the ledger was OPEN when this was called, or later: no recovery had begun then.

    Raises LedgerFenced if another client recovers, closed or deleted it, MetadataError when nobody can tell.
    """
    began = await driver.sync()
    try:
        metadata = (await driver.read_ledger(ledger)).value
    except NoSuchLedger:
        raise LedgerFenced("another client deleted this ledger", ledger=ledger) from None
    _require_open(ledger, metadata)
    if await driver.sync() != began:
        raise MetadataUnavailable("the connection broke while this was read: it may be old", ledger=ledger)


def _require_open(ledger: LedgerId, metadata: LedgerMetadata) -> None:
    if metadata.state is LedgerState.IN_RECOVERY:
        raise LedgerFenced(ledger=ledger)
    if metadata.is_closed:
        # That client may have recovered entries that are unconfirmed here: LedgerClosed would say too much.
        raise LedgerFenced("another client closed this ledger", ledger=ledger, last_entry=metadata.last_entry)
