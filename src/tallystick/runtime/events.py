"""Every protocol decision is one structured event with its reason: logs, CLI and reports show the same ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tallystick.runtime.arguments import plain_function


@dataclass(frozen=True)
class Event:
    """``kind`` is a short fixed phrase (``ensemble changed``), ``fields`` what it is about: ledger, bookie, reason …"""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{key}={value}" for key, value in self.fields.items())])


class Events:
    """Where the shells report. Listeners run at once, in order, on the reporting thread; they must not raise."""

    def __init__(self, *listeners: Callable[[Event], None]) -> None:
        """Raises UsageError for what is no plain function."""
        for listener in listeners:
            plain_function(listener, "a listener of events")
        self._listeners = list(listeners)

    def emit(self, kind: str, **fields: Any) -> None:
        """Tell all listeners, at once and in order."""
        event = Event(kind, fields)
        for listener in tuple(self._listeners):
            listener(event)

    @contextlib.contextmanager
    def listening(self, listener: Callable[[Event], None]) -> Iterator[None]:
        """Hear events for a while. Raises UsageError for what is no plain function."""
        plain_function(listener, "a listener of events")
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
