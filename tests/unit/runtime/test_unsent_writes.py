"""What a transport holds of what its peer has not taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.runtime.unsent_writes import WRITE_BYTES, UnsentWrites


def test_a_write_is_held_as_a_whole_until_all_of_it_is_taken() -> None:
    writes = UnsentWrites()
    writes.wrote(1000)
    assert not writes.look(1000) and writes.held_bytes == 1000 + WRITE_BYTES
    writes.wrote(500)
    assert writes.look(1499) and writes.held_bytes == 1500 + 2 * WRITE_BYTES, "more was written meanwhile"
    assert writes.look(501) and writes.held_bytes == 1500 + 2 * WRITE_BYTES
    assert writes.look(500) and writes.held_bytes == 500 + WRITE_BYTES
    assert not writes.look(500)
    assert writes.look(0) and writes.held_bytes == 0
    writes.wrote(7)
    writes.clear()
    assert not writes.look(0) and writes.held_bytes == 0


@given(st.lists(st.one_of(st.integers(1, 50), st.integers(-120, -1)), max_size=60))
def test_what_is_held_is_that_of_the_writes_that_are_left(steps: list[int]) -> None:
    writes, left, taken_before = UnsentWrites(), list[int](), 0
    for step in steps:
        if step > 0:
            writes.wrote(step)
            left.append(step)
            continue
        taken = min(-step, sum(left) - taken_before)
        taken_before += taken
        while left and taken_before >= left[0]:
            taken_before -= left.pop(0)
        assert writes.look(sum(left) - taken_before) == (taken > 0)
        assert writes.held_bytes == sum(left) + WRITE_BYTES * len(left)


def test_bytes_that_nobody_wrote_count_too() -> None:
    """As those that TLS adds."""
    writes = UnsentWrites()
    writes.wrote(100)
    assert not writes.look(150) and writes.held_bytes == 150 + WRITE_BYTES
    assert writes.look(120)
