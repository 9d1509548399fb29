"""Replicated logs you can pip-install: Apache BookKeeper's ledger protocol in Python, with a PySpark pipeline over it.

::

    async with tallystick.connect("sqlite:///var/lib/tally/meta.db") as bk:
        async with await bk.create_ledger() as writer:
            await writer.append(b"hello")

``tallystick.sync`` has the same without ``async``; ``tallystick.errors`` everything that can be raised. The names below
are imported when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.bookkeeper.ledger.client import BookKeeper, connect
    from tallystick.bookkeeper.ledger.read import Entry
    from tallystick.bookkeeper.ledger.reader import LedgerReader
    from tallystick.bookkeeper.ledger.settings import ClientSettings
    from tallystick.bookkeeper.ledger.writer import LedgerWriter
    from tallystick.bookkeeper.wire.values import LedgerMetadata, LedgerState
    from tallystick.errors import TallyError
    from tallystick.runtime.events import Event, Events

__all__ = [
    "BookKeeper",
    "ClientSettings",
    "Entry",
    "Event",
    "Events",
    "LedgerMetadata",
    "LedgerReader",
    "LedgerState",
    "LedgerWriter",
    "TallyError",
    "connect",
]

_HOMES = {
    "BookKeeper": "tallystick.bookkeeper.ledger.client",
    "ClientSettings": "tallystick.bookkeeper.ledger.settings",
    "Entry": "tallystick.bookkeeper.ledger.read",
    "Event": "tallystick.runtime.events",
    "Events": "tallystick.runtime.events",
    "LedgerMetadata": "tallystick.bookkeeper.wire.values",
    "LedgerReader": "tallystick.bookkeeper.ledger.reader",
    "LedgerState": "tallystick.bookkeeper.wire.values",
    "LedgerWriter": "tallystick.bookkeeper.ledger.writer",
    "TallyError": "tallystick.errors",
    "connect": "tallystick.bookkeeper.ledger.client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use finds it without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
