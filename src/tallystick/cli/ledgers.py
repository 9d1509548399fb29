"""What the terminal shows of a ledger's metadata."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import tallystick
from tallystick.admin import cluster
from tallystick.admin.ledgers import LedgerStatus, Replica, list_ledgers, replicas
from tallystick.admin.placement import FragmentPlacement, placement_of
from tallystick.bookkeeper.ledger.locations import Locations
from tallystick.bookkeeper.repair.shortfall import text_of
from tallystick.bookkeeper.wire.lost_runs import lost_of, runs_of_lost
from tallystick.bookkeeper.wire.values import Ensemble, EntryId, LedgerId, LedgerMetadata
from tallystick.cli import output
from tallystick.errors import Unauthorized


async def find(uri: str, ledger: LedgerId) -> tuple[LedgerMetadata, list[Replica]]:
    """The metadata; of a ledger that is not closed also what its bookies have."""
    async with tallystick.connect(uri) as bk:
        metadata = await bk.ledger_metadata(ledger)
        return metadata, [] if metadata.is_closed else await replicas(bk.context.bookies, ledger, metadata)


async def find_placement(uri: str, ledger: LedgerId) -> list[FragmentPlacement]:
    """Where its fragments lie."""
    async with tallystick.connect(uri) as bk:
        return placement_of(await bk.ledger_metadata(ledger), await bk.bookies(), Locations())


async def find_all(uri: str) -> list[LedgerStatus]:
    statuses = []
    with output.progress("ledgers") as count:
        async with cluster.metadata(uri) as driver:
            async for ledger in list_ledgers(driver):
                statuses.append(ledger)
                count(1)
    return statuses


async def has_password(uri: str, ledger: LedgerId) -> bool:
    """Whether deleting it needs one."""
    async with tallystick.connect(uri) as bk:
        return bool((await bk.ledger_metadata(ledger)).password)


async def delete(uri: str, ledger: LedgerId, password: bytes) -> None:
    """Raises Unauthorized for another password than the ledger's.

    The original's client asks for none. Ours does here, since whoever names a wrong ledger loses it.
    """
    async with tallystick.connect(uri) as bk:
        ledger_password = (await bk.ledger_metadata(ledger)).password
        if ledger_password and not hmac.compare_digest(ledger_password, password):
            reason = "the password given is not its own" if password else "none is given"
            raise Unauthorized(f"deleting this ledger needs its password, and {reason}", ledger=ledger)
        await bk.delete_ledger(ledger)


def row(ledger: LedgerStatus) -> dict[str, Any]:
    """A line of the table, of 80 columns at most. Only a closed ledger's entries and bytes are known here."""
    metadata = ledger.metadata
    return {
        "ledger": ledger.id,
        "state": metadata.state.name,
        "entries": metadata.last_entry + 1 if metadata.is_closed else None,
        "bytes": metadata.length if metadata.is_closed else None,
        "E/Qw/Qa": f"{metadata.ensemble_size}/{metadata.write_quorum}/{metadata.ack_quorum}",
        "digest": _digest(metadata),
        "created": _time(metadata.ctime_ms),
    }


def details(ledger: LedgerId, metadata: LedgerMetadata, replicas: list[Replica] | None = None) -> dict[str, Any]:
    """Everything but the password; with what the bookies of a ledger that is not closed have."""
    missing_bookies = [replica.bookie for replica in replicas or () if replica.last_entry is None]
    return {
        "ledger": ledger,
        "state": metadata.state.name,
        "last_entry": metadata.last_entry if metadata.is_closed else None,
        "length": metadata.length if metadata.is_closed else None,
        "ensemble": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest": _digest(metadata),
        "created": _time(metadata.ctime_ms),
        "format": metadata.format_version,
        "custom": dict(metadata.custom),
        "lost": text_of(runs_of_lost(lost_of(metadata.custom))) or None,
        "fragments": [FragmentRow(one.first, one.bookies) for one in metadata.fragments],
        **({"replicas": replicas, "degraded": ", ".join(missing_bookies) or None} if replicas else {}),
    }


def _digest(metadata: LedgerMetadata) -> str | None:
    """Return None if the metadata store no digest type."""
    return metadata.digest_type.name.lower() if metadata.has_password else None


@dataclass(frozen=True)
class FragmentRow:
    """An object in JSON, a short line as text."""

    first: EntryId
    bookies: Ensemble

    def __str__(self) -> str:
        return f"from {self.first}: {', '.join(self.bookies)}"


def _time(milliseconds: int | None) -> str | None:
    """Stored times are a stranger's numbers: one that is no date is shown as it is."""
    if milliseconds is None:
        return None
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
