"""What a target of fuzzing is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """``run`` takes any bytes, and raises only for a fault of ours; a search begins at the ``seeds``."""

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes] = field(default=())
