"""Who sends a bookie requests that wait, without a connection."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Asker:
    """As much of a session as those that keep its requests know."""

    peer: str = "127.0.0.1"
    gone: bool = False
    faults: list[Exception] = field(default_factory=list)

    def fail(self, error: Exception) -> None:
        self.faults.append(error)
