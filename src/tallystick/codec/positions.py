"""Positions of messages in a stream as texts: ``ledger:entry``, or ``ledger:entry:index`` within a batch."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

from tallystick.codec.implementation import with_twin
from tallystick.codec.spans import whole_numbers


@with_twin
def position_texts(ledger: int, entries: Any, indexes: Any) -> tuple[bytes, bytes]:
    """The texts of messages of one ledger, one after another, and where each begins and the last ends, in 32 bits each.

    ``entries`` and ``indexes`` are columns of numbers of 64 bits; an index that is negative is none. Raises ValueError
    for columns of unlike length.
    """
    places = zip(whole_numbers(entries), whole_numbers(indexes), strict=True)
    texts = [f"{ledger}:{entry}" if index < 0 else f"{ledger}:{entry}:{index}" for entry, index in places]
    return "".join(texts).encode(), array("i", accumulate(map(len, texts), initial=0)).tobytes()
