"""How the ledgers leave that attempts wrote and no commit can list any more: of dead tasks, and of repeated batches.

They are found by their notes. A note is read before the list, so that an attempt of which the list knows nothing is of
a run that is over, or of a batch that is stored; ``Deletions`` condemns it, and looks at the list once more.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.bookkeeper.stream.catalog import CONDEMNED
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.splice.attempt_note import can_be_committed, decode_note
from tallystick.bookkeeper.stream.splice.record import SinkRecord, applications, is_sink
from tallystick.bookkeeper.wire.ledger_runs import find
from tallystick.bookkeeper.wire.values import LedgerId

NO_WORDS = b""  # of a ledger that retention dropped, or an owner made


async def sweep(context: StreamContext, stream: str) -> list[LedgerId]:
    """Delete the ledgers that no commit can list, and those that retention dropped. Returns them. No run is
    ended: applications go on.

    Of a stream with an owner it deletes nothing: what is noted there is the owner's. Raises NoSuchStream, Unavailable,
    MetadataError.
    """
    notes = await context.catalog.notes(stream)
    info = (await context.catalog.read(stream, synced=True)).value
    if not is_sink(info):
        return []
    records = applications(info)
    dead_ledgers = [
        ledger for ledger, words in notes if find(info.ledgers, ledger) is None and _is_dead(words, records)
    ]
    if dead_ledgers:
        await context.deletions.delete(stream, dead_ledgers)
        context.context.events.emit("sink swept", stream=stream, ledgers=len(dead_ledgers))
    return dead_ledgers


def _is_dead(words: bytes, records: Mapping[str, SinkRecord]) -> bool:
    """Whether no commit can list a ledger with this note. What a newer version wrote stays."""
    if words in (NO_WORDS, CONDEMNED):
        return True
    note = decode_note(words)
    record = None if note is None else records.get(note.application)
    # An attempt is made after the record of its application: without one that was forgotten.
    return note is not None and (record is None or not can_be_committed(note, record))
