"""The tables that a query can write, and what each kind can do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tallystick.errors import UsageError
from tallystick.pipeline.tables.record import TableRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.pipeline.tables.files import WrittenFile

FORMS = "delta:PATH, iceberg:NAMESPACE.TABLE or parquet:PATH"


_DRAWN = re.compile(r"\x1b\[[\d;]*m|↳")  # in errors of libraries: colours and arrows, over many lines
_MOST_CHARACTERS = 300  # of one that are shown


class CommitLost(Exception):
    """Another commit came between: read the table again, and decide again."""


@dataclass(frozen=True)
class TableState:
    """A table as it is read at one moment. ``record`` is that of the application that asks."""

    version: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    record: TableRecord | None
    folder: str  # the URI that files are written under


class TableTarget(Protocol):
    """A table whose commits say which batch of which application they are."""

    name: str
    has_partitions_in_files: bool
    can_compact: bool

    def load(self, application: str) -> TableState | None:
        """Read the table; None if there is none. Raises UsageError for one that must not be written so."""

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Make the table, without rows, unless somebody else has made it meanwhile."""

    def commit(self, files: Sequence[WrittenFile], new: pa.Schema, application: str, written: TableRecord) -> str:
        """Add files, columns and the record to the state that ``load`` gave last, all in one; the version.

        Raises CommitLost if that is not the newest one any more.
        """

    def compact(self, target_file_bytes: int) -> dict[str, int]:
        """Make large files of small ones; how many were replaced, by how many. Raises CommitLost."""

    def listed(self, files: Mapping[str, float]) -> set[str]:
        """Of names of files and when they were written, in seconds since 1970, those that a version of the table lists,
        or has listed, or may have listed."""


def split_target(text: str) -> tuple[str, str]:
    """Returns format and place. Raises UsageError."""
    kind, colon, place = text.partition(":")
    if not colon or not place or kind not in ("delta", "iceberg", "parquet"):
        raise UsageError(f"a target is {FORMS}", given=text)
    return kind, place


def error_words(error: Exception) -> str:
    """Returns what an error of a library says, in one line that is not too long."""
    return " ".join(_DRAWN.sub(" ", str(error)).split())[:_MOST_CHARACTERS] or type(error).__name__
