"""Who is asked for the entries of a striped ledger."""

from __future__ import annotations

from collections import Counter

import pytest

from tallystick.bookkeeper.ledger.read_shares import slots_of_piece
from tallystick.bookkeeper.ledger.striping import Striping

SIZES = [(size, quorum) for size in range(2, 9) for quorum in range(1, size)]


@pytest.mark.rule("Q4")
@pytest.mark.parametrize(("size", "quorum"), SIZES)
def test_q4_every_slot_is_of_the_write_set_and_all_have_equal_shares(size: int, quorum: int) -> None:
    striping, counts = Striping(size, quorum, quorum), Counter[int]()
    for piece in range(7, 7 + size):
        slots = slots_of_piece(size, quorum, piece)
        assert all(slots[entry % size] in striping.slots(entry) for entry in range(2 * size))
        counts += Counter(slots)
    assert set(counts) == set(range(size)) and set(counts.values()) == {size}


@pytest.mark.parametrize(("size", "quorum"), SIZES)
def test_few_bookies_give_all_that_they_have(size: int, quorum: int) -> None:
    """As few as there can be, and of them at most one gives a part of what it has."""
    for piece in range(size):
        counts = Counter(slots_of_piece(size, quorum, piece))
        assert len(counts) == -(-size // quorum)
        assert sum(count < quorum for count in counts.values()) <= 1


def test_the_picture() -> None:
    assert slots_of_piece(3, 2, 0) == (0, 2, 0)
    assert slots_of_piece(3, 2, 1) == (1, 1, 0)
    assert slots_of_piece(3, 1, 0) == (0, 1, 2)
    assert slots_of_piece(4, 2, 1) == slots_of_piece(4, 2, 5) == (1, 1, 3, 3)
