"""A disk that refuses some operations for a while, and loses what a failed sync was to make durable.

Lives of some seeds have it beside all else. It is drawn apart from the rest of a plan, and not for seeds of lives that
were once broken: those stay as they were.
"""

from __future__ import annotations

import random

from tallystick.errors import StorageError

FAILING_DISK = "failing disk"  # as a plan has it
_OPERATIONS = (("sync",), ("write",), ("read",), ("sync", "write", "sync_dir"), ("sync", "write", "read", "rename"))
_SHARES = (0.01, 0.1, 0.5)  # of these that fail
_MOST_STRIKES = 3

Strikes = tuple[tuple[float, str], ...]  # when, and what


def with_failing_disks(seed: int, strikes: Strikes, storm_s: float) -> Strikes:
    """Returns what befalls the machines of a life, with the failing disks that its seed may have."""
    if seed % 11 not in (3, 7):
        return strikes
    rng = random.Random(f"{seed} {FAILING_DISK}")
    moments = [rng.random() * storm_s for _ in range(rng.randint(1, _MOST_STRIKES))]
    return tuple(sorted([*strikes, *((moment, FAILING_DISK) for moment in moments)]))


class DiskFailure:
    """The ``fault`` of a disk; ``happened`` once it refused something."""

    def __init__(self, rng: random.Random) -> None:
        self._random, self.happened = rng, False
        self._operations, self._share = rng.choice(_OPERATIONS), rng.choice(_SHARES)

    def __call__(self, operation: str, path: str) -> StorageError | None:
        if operation not in self._operations or self._random.random() >= self._share:
            return None
        self.happened = True
        return StorageError("the simulated disk failed", operation=operation, path=path)
