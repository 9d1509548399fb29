"""What a server knows of a service of several, of which it is one or which it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.runtime import arguments

INSTANCE = "TALLY_INSTANCE"  # the variable that has the number of each, from 1 on
MOST_INSTANCES = 64


@dataclass(frozen=True)
class Pages:
    """Where the pages of a service are; port 0 is a free one."""

    host: str
    port: int


def require_count(count: int) -> None:
    """Raises UsageError for so many that nobody means it, and for none."""
    arguments.whole(count, "--instances", least=1, most=MOST_INSTANCES)


def require_room(ports: Mapping[str, Sequence[int]], pages: Pages | None) -> None:
    """Raises UsageError for a port that is none, or is that of two; 0 is a free one. ``ports``: by their key."""
    key_of: dict[int, str] = {} if pages is None or not pages.port else {pages.port: "the pages of all"}
    for key, numbers in ports.items():
        for port in filter(None, numbers):
            if not 0 < port <= 65535:
                raise UsageError(f"{key} is a port, for each instance another: they are too many", port=port)
            if port in key_of:
                raise UsageError(f"{key} and {key_of[port]} need the same port: move one of them", port=port)
            key_of[port] = key
