"""Who is asked first in a striped ledger."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import gcd

import pytest

from tallystick.bookkeeper.ledger.read_shares import first_slots
from tallystick.bookkeeper.ledger.striping import Striping

SIZES = [(size, quorum) for size in range(2, 9) for quorum in range(1, size)]


@pytest.mark.rule("Q4")
@pytest.mark.parametrize(("size", "quorum"), SIZES)
def test_q4_every_slot_is_of_the_write_set_and_all_have_equal_shares(size: int, quorum: int) -> None:
    slots, striping = first_slots(size, quorum), Striping(size, quorum, quorum)
    for entry in range(2 * len(slots)):
        assert slots[entry % len(slots)] in striping.slots(entry)
    assert set(Counter(slots).values()) == {len(slots) // size} and set(slots) == set(range(size))


@pytest.mark.parametrize(("size", "quorum"), SIZES)
def test_neighbours_are_together(size: int, quorum: int) -> None:
    """As few runs as there can be, but for one where the groups shift."""
    slots = first_slots(size, quorum)
    changes = sum(before != after for before, after in pairwise(slots))
    assert changes < len(slots) // quorum + gcd(size, quorum)


def test_the_picture() -> None:
    assert first_slots(3, 2) == (1, 1, 0, 0, 2, 2)
    assert first_slots(3, 1) == (0, 1, 2)
    assert first_slots(4, 2) == (1, 1, 3, 3, 1, 1, 3, 3, 0, 2, 2, 0, 0, 2, 2, 0)
