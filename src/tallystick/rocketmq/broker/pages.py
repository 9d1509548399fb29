"""Tables that a slave of ours copies page by page (GET_TABLE_PAGE, a code of ours alone; H12).

The original sends a whole table in one frame, which ends at 16 MiB, or asks for pages of topics and groups only. Here
any table has pages: entries by their *place*, which stays the same under one ``snapshot``. An entry that is added comes
last; one that goes makes the places behind it move, so the snapshot steps, and the reader begins again. What an entry
holds may change between two pages: each entry is right by itself. An original answers this code with "not supported",
and the slave asks in the original's way.
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
    """What a master pages."""

    @property
    def snapshot(self) -> int:
        """Steps when places change."""
        ...

    def page(self, start: int) -> Page:
        """The entries from place ``start`` on, as many as take no more than some milliseconds."""
        ...
