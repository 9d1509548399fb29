"""The note of a ledger that an attempt writes: made in one with the ledger, it says whose it is.

A note goes in one with the list that has the ledger. Whoever deletes a ledger condemns its note first, and no list gets
it then (``catalog``). So of the attempts that nobody will commit any more each one is found, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tallystick.bookkeeper.stream.splice.record import SinkRecord


@dataclass(frozen=True)
class AttemptNote:
    """Which attempt at which batch writes a ledger; ``partition`` and ``attempt`` are for people."""

    application: str
    run: str
    batch: int
    partition: int
    attempt: int


def encode_note(note: AttemptNote) -> bytes:
    return msgspec.json.encode(note)


def decode_note(data: bytes) -> AttemptNote | None:
    """Returns None for the note of an owner's ledger, of one that is condemned, and for words of another version."""
    try:
        return msgspec.json.decode(data, type=AttemptNote)
    except msgspec.DecodeError:
        return None


def can_be_committed(note: AttemptNote, record: SinkRecord) -> bool:
    """Whether a commit may still list the attempt's ledger: of a batch that is not stored, and of no run that is over.

    A run that nobody knows may be about to begin.
    """
    return note.run not in record.before and note.batch > record.batch
