"""Which slot is asked first for an entry of a striped ledger, so that a bookie's share is runs and not single entries.

::

    E=3, Qw=2    entry   0  1  2  3  4  5  6  7  …        Qw neighbours have one slot in common:
                 slot    1  1  0  0  2  2  1  1  …        entries that follow one another there are one read of its disk

The original asks the first slot of each entry's write set: neighbours never lie together.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from tallystick.bookkeeper.wire.values import Slot


@lru_cache(maxsize=64)
def first_slots(ensemble_size: int, write_quorum: int) -> tuple[Slot, ...]:
    """Return the slot for each entry modulo the length of this. Every slot is there equally often."""
    block = ensemble_size * write_quorum
    slots: list[Slot] = []
    # Where E and Qw have a common divisor, groups that all begin at multiples of Qw would leave slots out.
    for shift in range(gcd(ensemble_size, write_quorum)):
        for entry in range(shift * block, (shift + 1) * block):
            group = (entry + shift) // write_quorum
            slots.append((group * write_quorum + write_quorum - 1 - shift) % ensemble_size)
    return tuple(slots)
