"""Texts of protobuf messages: the Python library gives one that is not UTF-8 as bytes, and calls it a string."""

from __future__ import annotations

from collections.abc import Iterable


def texts(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values themselves. Raises ValueError when one is not UTF-8."""
    checked = tuple(values)
    try:
        "".join(checked)
    except TypeError:
        raise ValueError("a text is not UTF-8") from None
    return checked
