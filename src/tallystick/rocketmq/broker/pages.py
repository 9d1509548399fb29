"""Tables that a slave of ours copies page by page (GET_TABLE_PAGE, a code of ours alone; H12).

The original sends a whole table in one frame, which ends at 16 MiB, or asks for pages of topics and groups only. Here
any table has pages: entries by their *place*, which is the same under one ``snapshot``. An entry that is added comes
last. One that goes keeps its place: a place is an entry's number among those there are, and as many more as ever went.
So whoever goes on behind entries that went reads some twice, misses none, and comes to the end however often some go.
What an entry holds may change between two pages: each entry is right by itself. An original answers this code with "not
supported", and the slave asks in the original's way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Page:
    """Some entries, in a form that both ends know; ``next`` is the place behind them, None behind the last one."""

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
