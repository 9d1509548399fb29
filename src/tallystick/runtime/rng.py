"""Chance, as an argument: placement and ids draw from it, so that a simulated run repeats from its seed."""

from __future__ import annotations

import os
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


_chance = random.Random()
os.register_at_fork(after_in_child=_chance.seed)  # else parent and child would draw the same


def system_random() -> Random:
    """Chance that the operating system seeded, once in each process: nothing here is a secret.

    Each draw from the system itself lets go of the interpreter, and has it again only when the threads beside are done
    with a turn of 5 ms: 15,000 placements beside a busy metadata thread waited a fifth of their time for that.
    """
    return _chance
