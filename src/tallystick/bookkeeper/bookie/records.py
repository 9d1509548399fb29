"""The records of a journal commit: its payload is one after another. All begin alike, big-endian::

    length of what follows 4 | type 2 | version 2 | …

    0x0201  ENTRY     version 0    master key 20 | entry                   a stored frame (``memtable.py``)
    0xFF01  FENCE     version 0    ledger 8 | master key 20
    0xFF02  CREATION  version 0    ledger 8 | creation of its metadata 8
    0xFF03  LAC       version 0    ledger 8 | LAC 8 | digest               an explicit LAC (``explicit_lacs.py``)
    0xFF04  UNSYNCED  version 0    number of a commit 8                    the first record of a commit, if at all
    0xFF05  FILLED    version 1    limbo era 8 | ledgers 8 each            they have left limbo (``limbo.py``)
                      version 0    ledgers 8 each                          the same in era 0

``_READERS`` has all versions of all types: a new one is an entry there, and a class that says what a replay does with
it. A record that is not in the table is of a newer version of this program, and the bookie does not start: the record
is neither skipped nor cut, as it may be what an answer promised.

Every entry has the master key with it, so nothing else is needed to bring a ledger back. A CREATION and a LAC come
after the first entry or fence of their ledger; a creation is -1 where a look found no metadata. UNSYNCED is for the
journal itself, which may have lost the commits from that one on when it was written (``journal.py``).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from tallystick.bookkeeper.bookie.explicit_lacs import is_body, ledger_of
from tallystick.bookkeeper.bookie.formats import of_a_newer_version
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.memtable import MemTables, Run
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.frames import PLAIN_ADD, AddRun, scan_adds
from tallystick.codec.uniform import scan_uniform_adds
from tallystick.errors import CorruptRecord
from tallystick.runtime.disk import Buffer

_HEAD = struct.Struct(">IHH")
_LENGTH_BYTES = 4
_ENTRY, _FENCE, _CREATION, _LAC, _UNSYNCED, _FILLED = PLAIN_ADD >> 16, 0xFF01, 0xFF02, 0xFF03, 0xFF04, 0xFF05
_FENCE_BODY = struct.Struct(">q20s")
_CREATION_BODY = struct.Struct(">qq")
_UNSYNCED_BODY = struct.Struct(">Q")
_FILLED_LEDGER = struct.Struct(">q")
_ERA = struct.Struct(">Q")


class JournalRecord(Protocol):
    """A record that a replay takes in."""

    @property
    def ledger(self) -> LedgerId: ...

    def replay(self, ledgers: Ledgers, tables: MemTables) -> None:
        """Repeat what was done when the record was written."""
        ...


@dataclass(frozen=True)
class Adds:
    """Added entries of one ledger."""

    ledger: LedgerId
    key: bytes = field(repr=False)
    run: Run

    def replay(self, ledgers: Ledgers, tables: MemTables) -> None:
        held_ledger = ledgers.alive.get(self.ledger) or ledgers.create(self.ledger, self.key)
        ledgers.added_to(self.ledger, held_ledger)
        # The fence is not asked: the entry was accepted.
        ledgers.extend(held_ledger, tables.active.add(self.ledger, self.run))


@dataclass(frozen=True)
class Fence:
    """A fence of a ledger, with the key that its client had."""

    ledger: LedgerId
    key: bytes = field(repr=False)

    def encode(self) -> bytes:
        return _encoded(_FENCE, _FENCE_BODY.pack(self.ledger, self.key))

    @classmethod
    def decode(cls, body: bytes) -> Fence:
        return cls(*_FENCE_BODY.unpack(body))

    def replay(self, ledgers: Ledgers, tables: MemTables) -> None:
        ledgers.fence(self.ledger, self.key, 0)


@dataclass(frozen=True)
class CreationRecord:
    """The creation of a ledger, which tells it from others that have or had its id; -1 if the look behind its first add
    found no metadata."""

    ledger: LedgerId
    creation: Creation

    def encode(self) -> bytes:
        return _encoded(_CREATION, _CREATION_BODY.pack(self.ledger, self.creation))

    @classmethod
    def decode(cls, body: bytes) -> CreationRecord:
        return cls(*_CREATION_BODY.unpack(body))

    def replay(self, ledgers: Ledgers, tables: MemTables) -> None:
        if self.creation == UNKNOWN:
            ledgers.lacks(self.ledger)
        else:
            ledgers.set_creation(self.ledger, self.creation)


@dataclass(frozen=True)
class ExplicitLac:
    """What a writer confirmed, as it said so."""

    body: bytes

    @property
    def ledger(self) -> LedgerId:
        return ledger_of(self.body)

    def encode(self) -> bytes:
        return _encoded(_LAC, self.body)

    @classmethod
    def decode(cls, body: bytes) -> ExplicitLac:
        if not is_body(body):
            raise struct.error("as long as no explicit LAC is")
        return cls(body)

    def replay(self, ledgers: Ledgers, tables: MemTables) -> None:
        ledgers.explicit_lacs.note(self.ledger, self.body)


@dataclass(frozen=True)
class Unsynced:
    """When its commit was written, those from ``first`` on had not been synced. No ledger is changed by it."""

    first: int
    ledger: LedgerId = field(default=-1, init=False)

    def encode(self) -> bytes:
        return _encoded(_UNSYNCED, _UNSYNCED_BODY.pack(self.first))

    @classmethod
    def decode(cls, body: bytes) -> Unsynced:
        return cls(*_UNSYNCED_BODY.unpack(body))

    def replay(self, ledgers: Ledgers, tables: MemTables) -> None:
        pass


@dataclass(frozen=True)
class Filled:
    """These ledgers have left limbo. A replay does so also where they were deleted since, and not where a folder failed
    since, which may have put them in limbo again."""

    ledgers: tuple[LedgerId, ...]
    era: int = 0
    ledger: LedgerId = field(default=-1, init=False)

    def encode(self) -> bytes:
        return _encoded(_FILLED, _ERA.pack(self.era) + b"".join(map(_FILLED_LEDGER.pack, self.ledgers)))

    @classmethod
    def decode(cls, body: bytes) -> Filled:
        return cls(cls.decode_0(body[_ERA.size :]).ledgers, *_ERA.unpack_from(body))

    @classmethod
    def decode_0(cls, body: bytes) -> Filled:
        return cls(tuple(ledger for (ledger,) in _FILLED_LEDGER.iter_unpack(body)))

    def replay(self, ledgers: Ledgers, tables: MemTables) -> None:
        if self.era == ledgers.limbo_era:
            ledgers.limbo.leave(self.ledgers)


def first_unsynced(payload: Buffer) -> int | None:
    """Return the number in the UNSYNCED that a commit begins with, None if it begins with something else."""
    if len(payload) < _HEAD.size + _UNSYNCED_BODY.size or _HEAD.unpack_from(payload)[1:] != (_UNSYNCED, 0):
        return None
    (first,) = _UNSYNCED_BODY.unpack_from(payload, _HEAD.size)
    return int(first)


def _no_entry(body: bytes) -> JournalRecord:
    """Refuse an entry: whole ones are found by the scans of runs, so this is shorter than the header of one."""
    raise struct.error("too short for an entry")


# By type: the readers of all versions of its body, from 0 on. The last one is what is written. They raise struct.error.
_READERS: Mapping[int, Sequence[Callable[[bytes], JournalRecord]]] = {
    _ENTRY: (_no_entry,),
    _FENCE: (Fence.decode,),
    _CREATION: (CreationRecord.decode,),
    _LAC: (ExplicitLac.decode,),
    _UNSYNCED: (Unsynced.decode,),
    _FILLED: (Filled.decode_0, Filled.decode),
}


def _encoded(kind: int, body: bytes) -> bytes:
    """Return a record of the newest version of its type."""
    return _HEAD.pack(_HEAD.size - _LENGTH_BYTES + len(body), kind, len(_READERS[kind]) - 1) + body


def decode(payload: bytes, path: str, offset: int) -> Iterator[JournalRecord]:
    """Decode the records of one commit, which is at this offset of a file, in order but for the ledgers within a run.

    Raises CorruptRecord, and StorageError for a record that only a newer version of this program knows.
    """
    position = 0
    while position < len(payload):
        rest = payload, position, len(payload), len(payload)
        run, stop = scan_uniform_adds(*rest) or scan_adds(*rest)
        yield from by_ledger(payload, run, range(len(run)))
        if stop == position:
            record, stop = _decode_one(payload, position, path, offset)
            yield record
        position = stop


def _decode_one(payload: bytes, position: int, path: str, offset: int) -> tuple[JournalRecord, int]:
    """Return a record that is no entry, and where it ends."""
    body = position + _HEAD.size
    if body > len(payload):
        raise CorruptRecord("a record in the journal is cut short", path=path, offset=offset + position)
    length, kind, version = _HEAD.unpack_from(payload, position)
    stop = position + _LENGTH_BYTES + length
    if not body <= stop <= len(payload):
        raise CorruptRecord("a record in the journal has an impossible length", path=path, offset=offset + position)
    readers = _READERS.get(kind, ())
    if version >= len(readers):
        raise of_a_newer_version("a record in the journal", path, offset + position, kind=kind, version=version)
    try:
        return readers[version](payload[body:stop]), stop
    except struct.error as error:
        raise CorruptRecord(
            "a record in the journal has another length than its type says", path=path, offset=offset + position
        ) from error


def picked(data: bytes, run: AddRun, places: Sequence[int]) -> tuple[bytes, AddRun]:
    """Copy the frames at these places of a run together."""
    frames = [data[run.bounds[place] : run.bounds[place + 1]] for place in places]
    keys, ledgers = [run.keys[place] for place in places], [run.ledgers[place] for place in places]
    entries = [run.entries[place] for place in places]
    return b"".join(frames), AddRun(keys, ledgers, entries, list(accumulate(map(len, frames), initial=0)))


def by_ledger(data: bytes, run: AddRun, places: Sequence[int]) -> Iterator[Adds]:
    """Sort the frames at these places of a run by ledger; those that do not lie together are copied together."""
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
