"""Tables that a slave of ours copies page by page (GET_TABLE_PAGE, a code of ours alone; H12).

The original sends a whole table in one frame, which ends at 16 MiB, or asks for pages of topics and groups only. Here
any table has pages: entries by their *place*, which is the same under one ``snapshot``. An entry that is added comes
last. A removed entry keeps its place: the place of an entry is its number among those that exist, plus the number of
entries that were ever removed. So a reader that goes on behind removed entries reads some twice, misses none, and
reaches the end however often entries are removed. An entry may change between two pages: each is right by itself.

An original answers this code with "not supported", and the slave asks in the original's way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Page:
    """A part of a table, in a form that both ends read. ``next`` is the place behind it; None behind the last entry."""

    body: bytes
    next: int | None


class PagedTable(Protocol):
    """A table that a master sends in pages."""

    @property
    def snapshot(self) -> int:
        """A number that steps when the table is replaced."""
        ...

    def page(self, start: int) -> Page:
        """Returns the entries from place ``start`` on, as many as take no more than some milliseconds."""
        ...
