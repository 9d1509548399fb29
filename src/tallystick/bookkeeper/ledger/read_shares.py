"""Which slot is asked for each entry of a piece of a striped ledger, so that few bookies have large shares of it.

::

    E=3, Qw=2    entry           0  1  2  3  4  5  6  7  …     slot 0 has 0 2 3 5 6 8 …, slot 1 has 0 1 3 4 6 7 …
                 piece 0: slot   0  2  0  0  2  0  0  2  …     slot 0 gives all that it has, slot 2 the rest
                 piece 1: slot   1  1  0  1  1  0  1  1  …

What a bookie has of a ledger lies there together, so that most of a piece is one read of a disk at each. The original
asks the first slot of each entry's write set: all bookies, and each for a part of what it has.
"""

from __future__ import annotations

from functools import lru_cache

from tallystick.bookkeeper.wire.values import Slot


@lru_cache(maxsize=256)
def slots_of_piece(ensemble_size: int, write_quorum: int, piece: int) -> tuple[Slot, ...]:
    """Return the slot for each entry modulo the ensemble's size. ``piece`` numbers the pieces, from any number on: of
    as many of them as there are slots every slot has an equal part."""
    first = piece % ensemble_size
    lowest = first - write_quorum + 1  # the first of Qw neighbours, modulo the size, that lie on that slot
    groups = ((entry - lowest) % ensemble_size // write_quorum for entry in range(ensemble_size))
    return tuple((first + group * write_quorum) % ensemble_size for group in groups)
