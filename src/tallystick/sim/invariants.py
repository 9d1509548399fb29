"""What a judge of the simulator raises."""

from __future__ import annotations

from typing import NoReturn, Protocol


class Violation(AssertionError):
    """A promise was broken; the text starts with its number."""


class OnViolation(Protocol):
    """A judge's: raises Violation."""

    def __call__(self, promise: str, what: str) -> NoReturn: ...
