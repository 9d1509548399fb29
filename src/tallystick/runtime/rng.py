"""Chance, as an argument: placement and ids draw from it, so that a simulated run repeats from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Random(Protocol):
    """What this package draws; ``random.Random(seed)`` fits."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...

    def choice(self, seq: Sequence[T], /) -> T: ...

    def sample(self, population: Sequence[T], k: int) -> list[T]: ...


def system_random() -> Random:
    """Chance from the operating system."""
    return random.SystemRandom()
