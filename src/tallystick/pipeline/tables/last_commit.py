"""The last commit of a query to its table, as the query's checkpoint has it.

It is noted behind each commit, so the table has that batch, or a later one. If not, the table was put back from an
older copy, or was deleted and made anew: who goes on would never write the rows between, and nobody would see it.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.errors import CheckpointLost, UsageError
from tallystick.pipeline.checkpoint import read_note, write_note

NOTE = "tallystick-table"  # a file of the checkpoint


class LastCommit(NamedTuple):
    """A batch that a table has."""

    table: str
    application: str
    batch: int


def note_commit(checkpoint: str, commit: LastCommit) -> None:
    """Raises OSError."""
    write_note(checkpoint, NOTE, commit)


def require_last_commit(checkpoint: str, recorded: LastCommit) -> None:
    """Raises CheckpointLost if the table, whose last batch of the application is ``recorded`` (-1: none), lacks one
    that it had; UsageError if another table has it, and this one never would; CorruptRecord."""
    noted = read_note(checkpoint, NOTE, LastCommit)
    if noted is None:
        return
    if noted[:2] == recorded[:2]:
        require_batch(recorded, noted.batch)
    elif noted.table != recorded.table and recorded.batch < noted.batch:
        raise UsageError(
            f"this checkpoint is of the table {noted.table}, which has its rows up to batch {noted.batch}: the table "
            f"{recorded.table} would never get them. Give each table a checkpoint of its own",
            checkpoint=checkpoint,
        )


def require_batch(recorded: LastCommit, batch: int) -> None:
    """Raises CheckpointLost if the table lacks a batch that it had."""
    if recorded.batch < batch:
        raise CheckpointLost(
            f"batch {batch} of application {recorded.application} was committed to this table, which lacks it: it was "
            "put back from an older copy, or made anew. Put the newest copy back, or begin with a new checkpoint: its "
            "query writes all that the source still has, under the name of another application if the table has "
            "batches of this one",
            table=recorded.table,
            application=recorded.application,
            batch=recorded.batch,
        )
