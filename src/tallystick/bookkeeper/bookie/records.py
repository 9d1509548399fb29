"""What the payload of a journal commit is made of: stored frames (``memtable.py``), and two records of other kinds::

    FENCE    length 32 4 | 0xFF010000 4 | ledger 8 | master key 20                             big-endian
    CREATION length 20 4 | 0xFF020000 4 | ledger 8 | creation of its metadata 8

Every stored frame has the master key with it, so nothing else is needed to bring a ledger back. A CREATION comes after
the first entry or fence of its ledger; it is -1 where a look found no metadata.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from tallystick.bookkeeper.bookie.memtable import Run
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.frames import AddRun, scan_adds
from tallystick.codec.uniform import scan_uniform_adds
from tallystick.errors import CorruptRecord

_FENCE = struct.Struct(">IIq20s")
_FENCE_HEAD = (_FENCE.size - 4, 0xFF010000)  # no frame of a client that is stored has this second word
_CREATION = struct.Struct(">IIqq")
_CREATION_HEAD = (_CREATION.size - 4, 0xFF020000)


@dataclass(frozen=True)
class Adds:
    """Entries of one ledger."""

    ledger: LedgerId
    key: bytes = field(repr=False)
    run: Run


@dataclass(frozen=True)
class Fence:
    ledger: LedgerId
    key: bytes = field(repr=False)

    def encode(self) -> bytes:
        return _FENCE.pack(*_FENCE_HEAD, self.ledger, self.key)


@dataclass(frozen=True)
class Noted:
    """Which of the ledgers that have or had this id it is; -1: the look behind what came found none."""

    ledger: LedgerId
    creation: Creation

    def encode(self) -> bytes:
        return _CREATION.pack(*_CREATION_HEAD, self.ledger, self.creation)


def decode(payload: bytes) -> Iterator[Adds | Fence | Noted]:
    """The records of one commit, in order but for the ledgers within a run. Raises CorruptRecord."""
    position = 0
    while position < len(payload):
        rest = payload, position, len(payload), len(payload)
        run, stop = scan_uniform_adds(*rest) or scan_adds(*rest)
        yield from by_ledger(payload, run, range(len(run)))
        if stop == position:
            record, stop = _decode_own(payload, position)
            yield record
        position = stop


def _decode_own(payload: bytes, position: int) -> tuple[Fence | Noted, int]:
    """A record of our own, and where it ends."""
    for layout, expected, kind in ((_FENCE, _FENCE_HEAD, Fence), (_CREATION, _CREATION_HEAD, Noted)):
        if len(payload) - position >= layout.size:
            *head, ledger, value = layout.unpack_from(payload, position)
            if tuple(head) == expected:
                return kind(ledger, value), position + layout.size
    raise CorruptRecord("the journal has a record of an unknown kind", offset=position)


def picked(data: bytes, run: AddRun, places: Sequence[int]) -> tuple[bytes, AddRun]:
    """The frames at these places of a run, copied together."""
    frames = [data[run.bounds[place] : run.bounds[place + 1]] for place in places]
    keys, ledgers = [run.keys[place] for place in places], [run.ledgers[place] for place in places]
    entries = [run.entries[place] for place in places]
    return b"".join(frames), AddRun(keys, ledgers, entries, list(accumulate(map(len, frames), initial=0)))


def by_ledger(data: bytes, run: AddRun, places: Sequence[int]) -> Iterator[Adds]:
    """The frames at these places of a run, sorted by ledger; ones that do not lie together are copied together."""
    if len(places) == len(run) and run.ledgers and run.ledgers.count(run.ledgers[0]) == len(run):
        yield Adds(run.ledgers[0], run.keys[0], Run(array("q", run.entries), array("Q", run.bounds), data))
        return
    groups: dict[LedgerId, list[int]] = {}
    for place in places:
        groups.setdefault(run.ledgers[place], []).append(place)
    bounds = run.bounds
    for ledger, group in groups.items():
        first, last = group[0], group[-1]
        entries = array("q", [run.entries[place] for place in group])
        if last - first == len(group) - 1:
            part = Run(entries, array("Q", bounds[first : last + 2]), data)
        else:
            frames = [data[bounds[place] : bounds[place + 1]] for place in group]
            part = Run(entries, array("Q", accumulate(map(len, frames), initial=0)), b"".join(frames))
        yield Adds(ledger, run.keys[first], part)
