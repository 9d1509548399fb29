"""What a judge of the simulator raises."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise was broken; the text starts with its number."""
