"""The ledgers of a stream as they are made: whose they are, in their custom metadata.

Pulsar's three keys are there, so that its tools know them. Ours says who wrote it: a newest ledger that is open and has
none of ours may be written by a Pulsar broker, which knows nothing of leases.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.values import LedgerId, LedgerMetadata
from tallystick.errors import MetadataError

OWNER_KEY = "tallystick/owner"
BEFORE_KEY = "tallystick/before"


def custom_metadata(stream: str, owner: str, before: str) -> Mapping[str, bytes]:
    """Returns the custom metadata of a stream's ledger. ``before`` says how the owner before lost the stream; empty if
    there was none."""
    fields = {BEFORE_KEY: before.encode()} if before else {}
    return fields | {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": stream.encode(),
        OWNER_KEY: owner.encode(),
    }


def owner_in(metadata: LedgerMetadata) -> str | None:
    """Returns which owner of ours made the ledger. Returns None if none did."""
    mark = metadata.custom.get(OWNER_KEY)
    return None if mark is None else mark.decode(errors="replace")


def before_in(metadata: LedgerMetadata) -> str:
    """Returns how the owner before the one that made the ledger lost the stream, in words; empty if nobody knows."""
    return metadata.custom.get(BEFORE_KEY, b"").decode(errors="replace")


async def make_ledger(
    ledgers: LedgerClient,
    catalog: StreamCatalog,
    stream: str,
    owner: str,
    settings: StreamSettings,
    newest: LedgerId,
    before: str,
) -> LedgerWriter:
    """Make the ledger of a stream that comes after ``newest``, noted in one with it. ``before`` says how the owner
    before this one lost the stream. Raises NotEnoughBookies, MetadataError."""
    writer = await ledgers.create_ledger(
        settings.ensemble,
        write_quorum=settings.write_quorum,
        ack_quorum=settings.ack_quorum,
        custom_metadata=custom_metadata(stream, owner, before),
        beside=lambda ledger: [catalog.note(stream, ledger)],
    )
    if writer.id <= newest:  # positions, and the order of the list, are by ids
        writer.abort()
        text = "new ledgers have lower ids than older ones: the metadata service has lost its counter"
        raise MetadataError(text, ledger=writer.id, newest=newest)
    return writer
