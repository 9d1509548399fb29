"""Positions as texts."""

from __future__ import annotations

from array import array

import pytest

from tallystick.codec.positions import position_texts


def test_a_position_has_an_index_within_a_batch() -> None:
    texts, ends = position_texts(7, array("q", [0, 12, 3]), array("q", [-1, 10, 0]))
    assert texts == b"7:07:12:107:3:0" and memoryview(ends).cast("i").tolist() == [0, 3, 10, 15]


def test_of_no_messages_there_is_no_text() -> None:
    assert position_texts(7, array("q"), array("q")) == (b"", bytes(4))


def test_columns_of_unlike_length_are_refused() -> None:
    with pytest.raises(ValueError):
        position_texts(7, array("q", [0]), array("q"))
