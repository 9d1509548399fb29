"""Numbers that peers send as text."""

from __future__ import annotations

import pytest

from tallystick.rocketmq.wire.numbers import number_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("007", 7), ("9" * 19, 10**19 - 1), ("9" * 20, None), ("9" * 5000, None), ("", None), ("-1", None),
        ("1_0", None), ("\u0663", None), (" 1", None),
    ],
)  # fmt: skip
def test_nothing_but_a_number_of_64_bits_is_read(text: str, number: int | None) -> None:
    assert number_of(text) == number
