"""The client of a command, and what it tells of its decisions on stderr."""

from __future__ import annotations

import sys

import tallystick
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.runtime.events import Event, Events
from tallystick.runtime.opening import Opening

# What whoever waits for an append, or reads, must know.
_TOLD = frozenset(
    (
        "ledger degraded",
        "ledger restored",
        "stream step failed",
        "stream ledger missing",
        "entry left out",
        "chunks left out",
    )
)


def connect(uri: str, *, explain: bool = False) -> Opening[BookKeeper]:
    """Connect to the cluster at ``uri``. ``explain``: each decision goes to stderr."""
    return tallystick.connect(uri, events=Events(_on_stderr if explain else _warn))


def _on_stderr(event: Event) -> None:
    print(event, file=sys.stderr)


def _warn(event: Event) -> None:
    if event.kind in _TOLD:
        print(f"tally: {event}", file=sys.stderr)
