"""What the registry of events knows of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class EventKind:
    """``level`` is a number of ``logging``, ``meaning`` a sentence for who reads it in a log."""

    level: int
    meaning: str


def kinds(level: int, meanings: Mapping[str, str]) -> dict[str, EventKind]:
    return {kind: EventKind(level, meaning) for kind, meaning in meanings.items()}
