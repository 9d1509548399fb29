"""Numbers that peers send as text."""

from __future__ import annotations

MAX_DIGITS = 19  # of a 64-bit number; Python refuses to read 4,301 digits, with an error that nobody expects


def number_of(text: str) -> int | None:
    """Returns the number in a text of ASCII digits; None for any other text, and for more than 19 digits."""
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdecimal() else None
