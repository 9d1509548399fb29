"""Where the messages of a pull are in the log; both codecs are compared in test_implementation.py, too."""

from __future__ import annotations

import struct

import pytest

from tallystick.codec.unit_runs import runs_of_units
from tallystick.rocketmq.store.units import FILLER, UNIT

FILE_BYTES, END = 1000, 1 << 40
ANY = (1 << 20, 1 << 40)


def packed(*units: tuple[int, int, int]) -> bytes:
    return b"".join(UNIT.pack(*unit) for unit in units)


def test_messages_one_after_another_are_one_run_up_to_the_border_of_a_file() -> None:
    units = packed((700, 100, 1), (800, 200, 2), (1000, 100, 3), (1100, 50, 4), (1200, 100, 5))
    runs = [(700, 1000), (1000, 1150), (1200, 1300)]
    assert runs_of_units(units, 0, END, FILE_BYTES, 0, (*ANY, *ANY), None) == (runs, 5, 550, 5, 1200, False)
    assert runs_of_units(b"", 0, END, FILE_BYTES, 0, (*ANY, *ANY), None) == ([], 0, 0, 0, 0, False)


def test_limits_depend_on_where_the_message_is_and_the_first_one_is_always_taken() -> None:
    units = packed((0, 100, 1), (100, 100, 1), (200, 100, 1), (300, 100, 1))
    assert runs_of_units(units, 0, END, FILE_BYTES, 200, (*ANY, 1, 1000), None)[1:5] == (1, 100, 1, 100)
    assert runs_of_units(units, 0, END, FILE_BYTES, 200, (3, 1000, *ANY), None)[1:5] == (3, 300, 3, 300)
    assert runs_of_units(units, 0, END, FILE_BYTES, 200, (9, 299, *ANY), None)[1:5] == (2, 200, 2, 200)
    assert runs_of_units(units, 0, END, FILE_BYTES, 0, (0, 0, 0, 0), None)[1:5] == (1, 100, 1, 100)


def test_fillers_and_other_tags_are_passed() -> None:
    units = packed((0, 100, 7), (100, 100, 8)) + FILLER + packed((200, 100, 7), (300, 100, 9))
    tags = frozenset({7})
    assert runs_of_units(units, 0, END, FILE_BYTES, 0, (*ANY, *ANY), tags) == (
        [(0, 100), (200, 300)],
        2,
        200,
        5,
        300,
        False,
    )


def test_messages_that_are_not_in_the_log_are_passed_and_told_of_before_the_first() -> None:
    units = packed((0, 100, 1), (100, 100, 1), (200, 100, 1))
    assert runs_of_units(units, 100, END, FILE_BYTES, 0, (*ANY, *ANY), None) == ([(100, 300)], 2, 200, 3, 200, True)
    assert runs_of_units(units, 0, 299, FILE_BYTES, 0, (*ANY, *ANY), None) == ([(0, 200)], 2, 200, 3, 200, False)
    assert runs_of_units(units, 300, END, FILE_BYTES, 0, (*ANY, *ANY), None) == ([], 0, 0, 3, 200, True)
    far = packed(((1 << 63) - 1, 0x7FFFFFFE, 1), (-(1 << 63), -(1 << 31), 1))
    assert runs_of_units(far, 0, 1 << 62, FILE_BYTES, 0, (*ANY, *ANY), None) == ([], 0, 0, 2, -(1 << 63), True)


def test_a_part_of_a_unit_is_refused() -> None:
    with pytest.raises(struct.error):
        runs_of_units(bytes(21), 0, END, FILE_BYTES, 0, (*ANY, *ANY), None)
