"""Where a streaming query begins in each ledger: from what an option says and what the ledger has, to entries. Pure.

An entry that is named is a promise: that it is not there is an error, never other rows or fewer.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.bookkeeper.wire.values import MAX_ID, EntryId, LedgerId
from tallystick.errors import NoSuchEntry, UsageError
from tallystick.pipeline.option_values import number_of_key

LATEST, EARLIEST = -1, -2  # as in Kafka's JSON
WORDS = {"latest": LATEST, "earliest": EARLIEST}
_FORM = 'latest, earliest, or JSON as in {"12": 345, "13": "earliest"}: ledgers, and the entry that is read first'


@dataclass(frozen=True)
class LedgerBound:
    """An entry for each ledger that is named, LATEST and EARLIEST among them, and ``default`` for the others; as
    ``option`` says."""

    option: str = "startingOffsets"
    default: EntryId = LATEST
    named_entries: Mapping[LedgerId, EntryId] = field(default_factory=dict)

    @classmethod
    def parse(cls, option: str, text: str) -> LedgerBound:
        """``latest``, ``earliest`` or ``{"12": 345}``; "" is latest. Raises UsageError."""
        word = text.strip().lower()
        if not word or word in WORDS:
            return cls(option, WORDS.get(word, LATEST))
        try:
            entries = {_whole(number_of_key(ledger)): _entry(entry) for ledger, entry in json.loads(text).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise UsageError(f"{option} is {_FORM}", value=text) from None
        return cls(option, EARLIEST, entries)

    @property
    def is_moving(self) -> bool:
        """Whether the bound is elsewhere when there is more."""
        return LATEST in {self.default, *self.named_entries.values()}

    def check(self, ledgers: Container[LedgerId]) -> None:
        """Raises UsageError for a ledger that is named and not read."""
        for ledger in sorted(self.named_entries):
            if ledger not in ledgers:
                reason = f"{self.option} names a ledger that the query does not read, or that is not there"
                raise UsageError(reason, ledger=ledger)

    def entry(self, ledger: LedgerId, end: EntryId) -> EntryId:
        """Returns the bound's entry in a ledger that has those before ``end``. Raises NoSuchEntry for one that is named
        and not there."""
        entry = self.named_entries.get(ledger, self.default)
        if entry == EARLIEST:
            return 0
        if entry == LATEST:
            return end
        if entry > end:
            raise NoSuchEntry(
                f"{self.option}: the ledger does not reach to this entry", ledger=ledger, entry=entry, end=end
            )
        return entry


def _entry(value: Any) -> EntryId:
    if isinstance(value, str):
        value = WORDS.get(value.strip().lower())
    return value if type(value) is int and value in (LATEST, EARLIEST) else _whole(value)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise ValueError
    return value
