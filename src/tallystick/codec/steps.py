"""Work that may take longer than a turn of a loop should: it stops after each step, so that others can have turns."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]  # what it returns at the end is the outcome


def finished(steps: Steps[T]) -> T:
    """Run all steps without a stop. Returns the outcome."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
