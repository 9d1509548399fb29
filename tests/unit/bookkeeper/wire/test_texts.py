"""A text of a protobuf message is a text."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.bookkeeper.wire.texts import texts


def test_texts_are_what_they_were() -> None:
    assert texts(iter(["a", "ä"])) == ("a", "ä")
    assert texts(()) == ()


def test_bytes_are_no_text() -> None:
    values: list[Any] = ["a", b"\x80"]
    with pytest.raises(ValueError, match="not UTF-8"):
        texts(values)
