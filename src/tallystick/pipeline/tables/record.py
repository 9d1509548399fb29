"""What a table says of an application that writes it: the last batch of its query. Pure.

A query's id comes back with its checkpoint, and a new checkpoint has another one, whose batches begin at 0 again: by
the id a table knows a batch that comes again from the first one of an application that lost its checkpoint. What
comes again is the last batch, with the offsets that it had. An earlier one, or other offsets, come of a checkpoint that
was put back from a copy: its batches reach to where the source is now, and to skip them would lose rows.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from tallystick.errors import CheckpointLost, UsageError

_APPLICATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_HALF = 1 << 64


@dataclass(frozen=True)
class TableRecord:
    """``query`` has committed the batches up to ``batch``; ``offsets`` is the digest of where that one ends."""

    query: str
    batch: int
    offsets: int


def application_name(text: str) -> str:
    """Raises UsageError for what cannot be part of the names of files."""
    if not _APPLICATION.fullmatch(text):
        raise UsageError(
            "an application is named with up to 100 letters, digits, dots, hyphens, underscores", given=text
        )
    return text


def is_committed(record: TableRecord | None, written: TableRecord, application: str, table: str) -> bool:
    """Returns whether the batch ``written`` is in the table. Raises CheckpointLost if another query has written it, or
    this one has gone further."""
    if record is None:
        return False
    require_same_query(record, written.query, application, table)
    if written.batch < record.batch or (written.batch == record.batch and written.offsets != record.offsets):
        raise CheckpointLost(
            f"application {application} has committed batch {record.batch} to this table, and this is batch "
            f"{written.batch} of an older checkpoint, with other rows. Another driver may go on with it; else put the "
            "newest copy of the checkpoint back, or begin under the name of another application, with startingOffsets "
            "behind what is in the table",
            table=table,
            application=application,
            query=record.query,
            batch=record.batch,
        )
    return written.batch == record.batch


def require_same_query(record: TableRecord, query: str | None, application: str, table: str) -> None:
    """Raises CheckpointLost unless ``query``, None for one that is still to be made, is the recorded one."""
    if record.query != query:
        this = "a new one" if query is None else f"query {query}"
        raise CheckpointLost(
            f"application {application} has committed batch {record.batch} of query {record.query} to this table, and "
            f"this is {this}: it began again without its checkpoint, and would store its rows a second time. Restore "
            "the checkpoint, or give it the name of another application if the rows are to be stored again",
            table=table,
            application=application,
            query=record.query,
            batch=record.batch,
        )


def query_halves(query: str) -> tuple[int, int]:
    """Returns a query's id as two numbers of 64 bits with a sign: all that a transaction of Delta can hold."""
    number = uuid.UUID(query).int
    return _signed(number >> 64), _signed(number % _HALF)


def query_of_halves(high: int, low: int) -> str:
    """Returns the id that ``query_halves`` had."""
    return str(uuid.UUID(int=((high % _HALF) << 64) | (low % _HALF)))


def _signed(half: int) -> int:
    return half - _HALF if half >= _HALF >> 1 else half
