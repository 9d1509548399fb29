"""Changes to a ledger's metadata, each a compare-and-set that is decided again when another client was first.

::

    OPEN ──(writer: close)──────────────────────────▶ CLOSED      final: nothing changes it any more
      └──(recovery: begin)──▶ IN_RECOVERY ──(close)──────▲        the writer that finds this state withdraws

Follows the original's ``MetadataUpdateLoop``; here a writer never closes a ledger that is being recovered, and a write
whose answer was lost is looked for and repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

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
    NotEnoughBookies,
    RecoveryIncomplete,
)

Stored = Versioned[LedgerMetadata]

ATTEMPTS = 3  # to make one change while its answers are lost


async def _update(
    driver: MetadataDriver,
    ledger: LedgerId,
    known: Stored,
    change: Callable[[LedgerMetadata], Awaitable[LedgerMetadata | None]],
) -> Stored:
    """Store what ``change`` makes of the newest metadata; None: it is good as it is.

    When the answer to a write is lost, what is stored decides: where nothing has changed the very same write is
    repeated (of writes that name one version at most one is made), what it would have stored is a success, and anything
    else is decided anew. Raises MetadataUncertain when a write may have been made all the same, and never only because
    something could not be read.
    """
    lost: list[MetadataUncertain] = []  # the answers of these writes
    with _doubts(lost):
        wanted = await change(known.value)
    while wanted is not None:
        try:
            return Versioned(wanted, await driver.write_ledger(ledger, wanted, known.version))
        except MetadataUncertain as error:
            lost.append(error)
            if len(lost) == ATTEMPTS:
                raise
        except MetadataUnavailable as error:
            raise lost[0] if lost else error from None
        except MetadataConflict:
            pass
        with _doubts(lost):
            found = await driver.read_ledger(ledger)
            if lost and _is_made(wanted, found.value):
                return found
            if found.version != known.version:
                known, wanted = found, await change(found.value)
    return known


@contextlib.contextmanager
def _doubts(lost: Sequence[MetadataUncertain]) -> Iterator[None]:
    """What fails here changes nothing by itself; but a write whose answer was lost may have been made."""
    try:
        yield
    except (MetadataUnavailable, NotEnoughBookies) as error:
        if lost:
            raise lost[0] from error
        if error.ambiguous:  # as a service that does not answer a read may say
            raise MetadataUnavailable(error.message, **error.fields) from error
        raise


def _is_made(wanted: LedgerMetadata, stored: LedgerMetadata) -> bool:
    """Whether this write was made: others may have changed older fragments since."""
    return (wanted.fragments[-1], wanted.state, wanted.last_entry, wanted.length) == (
        stored.fragments[-1], stored.state, stored.last_entry, stored.length,
    )  # fmt: skip


async def change_ensemble(
    driver: MetadataDriver,
    ledger: LedgerId,
    known: Stored,
    failed: Collection[BookieId],
    first: EntryId,
    replace: Callable[[Collection[BookieId], LedgerMetadata], Awaitable[Ensemble]],
) -> Stored:
    """The writer's entries from ``first`` on go to an ensemble without the failed bookies (Q8).

    Decided on the stored ensemble, not on the writer's: what others changed meanwhile stays. Raises LedgerFenced when
    the ledger is no longer open, NoSuchLedger, MetadataError, and what ``replace`` raises.
    """

    async def change(stored: LedgerMetadata) -> LedgerMetadata | None:
        _require_open(ledger, stored)
        if not any(bookie in failed for bookie in stored.ensemble):
            return None
        return stored.with_fragment(first, await replace(failed, stored))

    return await _update(driver, ledger, known, change)


async def close_written(
    driver: MetadataDriver, ledger: LedgerId, known: Stored, last_entry: EntryId, length: int
) -> Stored:
    """The writer closes its own ledger. Raises LedgerFenced when another client recovers it or ended it elsewhere."""

    async def change(stored: LedgerMetadata) -> LedgerMetadata | None:
        if stored.is_closed and (stored.last_entry, stored.length) == (last_entry, length):
            return None
        _require_open(ledger, stored)
        return stored.closed(last_entry, length)

    return await _update(driver, ledger, known, change)


async def begin_recovery(driver: MetadataDriver, ledger: LedgerId, known: Stored) -> Stored:
    """The ledger is IN_RECOVERY (another recovery may be under way too), or CLOSED already (Q13)."""

    async def change(stored: LedgerMetadata) -> LedgerMetadata | None:
        return stored.in_recovery() if stored.state is LedgerState.OPEN else None

    return await _update(driver, ledger, known, change)


async def close_recovered(
    driver: MetadataDriver,
    ledger: LedgerId,
    began: Stored,
    last_entry: EntryId,
    length: int,
    fragments: tuple[Fragment, ...],
) -> Stored:
    """Store the end that recovery found, and its fragments (Q16). Who closes first wins; all others take that end.

    Raises RecoveryIncomplete when the newest fragment is no longer the one that was read.
    """

    async def change(stored: LedgerMetadata) -> LedgerMetadata | None:
        if stored.is_closed:
            return None
        if stored.state is not LedgerState.IN_RECOVERY or stored.fragments[-1] != began.value.fragments[-1]:
            raise RecoveryIncomplete("the metadata changed during recovery", ledger=ledger, state=stored.state.name)
        for fragment in fragments:
            stored = stored.with_fragment(fragment.first, fragment.bookies)
        return stored.closed(last_entry, length)

    return await _update(driver, ledger, began, change)


def _require_open(ledger: LedgerId, stored: LedgerMetadata) -> None:
    if stored.state is LedgerState.IN_RECOVERY:
        raise LedgerFenced(ledger=ledger)
    if stored.is_closed:
        # That client may have recovered entries that are unconfirmed here: LedgerClosed would say too much.
        raise LedgerFenced("another client closed this ledger", ledger=ledger, last_entry=stored.last_entry)
