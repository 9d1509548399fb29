"""The state of a bookie's ledgers and entry logs over a restart: the content of the ``state`` file.

It is replaced whole at each checkpoint (``state_file.py``); integers big-endian::

    magic "TALLYST4" 8 | mark 8 | journal generation 8 | journal number 8 | next log 8 | anchor 8
    sections, each: type 2 | version 2 | bytes of the body 8 | body
    CRC32C of all before 4

    1  LOGS     version 0    id 8 each                       the entry logs that count; other log files are leftovers
    2  LEDGERS  version 0    ledger 8 | born 8 | flags 1 | key 20 | creation 8      flags: 1 fenced, 2 unmade
    3  DELETED  version 0    ledger 8 | last access, ms since 1970 8 | creation 8   -2 - creation: it was ahead
    4  GIVEN_UP version 0    ledger 8 | creation 8                                  in the order of the deletions
    5  LACS     version 0    bytes of what follows 2 | ledger 8 | LAC 8 | digest    ``explicit_lacs.py``
    6  LIMBO    version 0    ledger 8 each                                          ``limbo.py``
    7  FOLDERS, 8 JOURNALS, 9 LOG_FOLDERS, 10 PLACES, version 0                     ``places.py``: of more than one

``_SECTIONS`` has all versions of all types: a new one is an entry there, and a field of ``State`` whose default says
that there is none. One with nothing in it is not written. A section, or a file, that is of a newer version of this
program is refused, as a journal record is (``records.py``). "TALLYST3", "2" and "1" have counts instead of sections,
"2" has no journal number, "1" no anchor and creations either; they are read, and the next state takes their place.

``mark``: journal commits up to this number are in the entry logs and in this file. ``journal generation`` and ``journal
number``: the newest segment that had a commit, and its last one. ``born``: the first entry log that may hold entries of
the ledger, so that entries of a deleted ledger do not come back in a new one with the same id.
``creation``: of the ledger's metadata, as a look found it; UNKNOWN before. It tells the ledger from another one that is
given the same id later. ``anchor``: the creation of the bookie's cookie. Metadata that was copied node by node has new
creations of everything, also of the cookie: then those that are kept say nothing, and are forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tallystick.bookkeeper.bookie.explicit_lacs import is_body, ledger_of
from tallystick.bookkeeper.bookie.formats import of_a_newer_version, version_of
from tallystick.bookkeeper.bookie.places import (
    NO_LAYOUT,
    JournalMark,
    Layout,
    Place,
    read_journals,
    read_layout,
    read_log_folders,
    read_places,
    write_journals,
    write_log_folders,
    write_places,
)
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord

UNKNOWN: Creation = -1

_NAME, _VERSION = b"TALLYST", 4
_HEAD = struct.Struct(">8sQQQQq")
_SECTION = struct.Struct(">HHQ")
_CRC_BYTES = 4
_LOG = struct.Struct(">Q")
_LEDGER = struct.Struct(">qQB20sq")
_FLAGS_AT = 16  # in a ledger
_DELETED = struct.Struct(">qQq")
_GIVEN_UP = struct.Struct(">qq")
_LIMBO = struct.Struct(">q")
_LAC_LENGTH = struct.Struct(">H")
_FENCED, _UNMADE = 1, 2
# The heads of the versions before, by version: mark, generation, next log, counts of logs, ledgers and deleted, …
_BEFORE = {version: struct.Struct(">8sQQQIII" + later) for version, later in ((3, "qQ"), (2, "q"), (1, ""))}
_NO_CREATION = struct.pack(">q", UNKNOWN)


@dataclass(frozen=True)
class LedgerRecord:
    """A ledger as the state file has it."""

    key: bytes = field(repr=False)
    born: int
    fenced: bool
    creation: Creation = UNKNOWN
    unmade: bool = False

    def packed(self, ledger: LedgerId) -> bytes:
        flags = _FENCED * self.fenced | _UNMADE * self.unmade
        return _LEDGER.pack(ledger, self.born, flags, self.key, self.creation)

    @classmethod
    def of(cls, packed: bytes) -> LedgerRecord:
        _, born, flags, key, creation = _LEDGER.unpack(packed)
        return cls(key, born, bool(flags & _FENCED), creation, bool(flags & _UNMADE))


class DeletedLedger(NamedTuple):
    """A deleted ledger, which is remembered for a while."""

    accessed_ms: int  # since 1970
    creation: Creation = UNKNOWN
    was_ahead: bool = False  # newer than the metadata, and given up: who has the id next may have an older creation

    @classmethod
    def of(cls, accessed_ms: int, noted: Creation = UNKNOWN) -> DeletedLedger:
        """Decode what the state file has."""
        was_ahead = noted < UNKNOWN
        return cls(accessed_ms, UNKNOWN - 1 - noted if was_ahead else noted, was_ahead)

    def packed(self, ledger: LedgerId) -> bytes:
        noted = UNKNOWN - 1 - self.creation if self.was_ahead else self.creation
        return _DELETED.pack(ledger, self.accessed_ms, noted)


class LedgerIdentity(NamedTuple):
    """Which of the ledgers of an id is or was stored here."""

    creation: Creation
    deleted: bool
    ahead: bool = False  # newer than the metadata, or was so when it was deleted

    @property
    def was_given_up(self) -> bool:
        """Whether it was deleted though it was newer than the metadata: an older creation then says nothing."""
        return self.deleted and self.ahead


@dataclass(frozen=True)
class State:
    """The content of the state file."""

    mark: int = 0
    generation: int = 0  # of the newest journal segment with a commit: a journal without it lost its end
    next_log: int = 1
    logs: tuple[int, ...] = ()
    ledgers: Mapping[LedgerId, bytes] = field(default_factory=dict)  # packed LedgerRecords
    deleted: Mapping[LedgerId, DeletedLedger] = field(default_factory=dict)
    anchor: Creation = UNKNOWN
    journal_number: int = 0  # of the last commit in that segment: one that ends before it lost its end
    given_up: Mapping[LedgerId, tuple[Creation, ...]] = field(default_factory=dict)  # ``given_up.py``
    explicit_lacs: Mapping[LedgerId, bytes] = field(default_factory=dict)  # ``explicit_lacs.py``
    limbo: tuple[LedgerId, ...] = ()  # ``limbo.py``
    # Of a bookie that has, or had, more than one folder or journal (``places.py``):
    layout: Layout = NO_LAYOUT
    journals: tuple[JournalMark, ...] = ()  # all of them; the first one has the numbers above, too
    log_folders: Mapping[int, int] = field(default_factory=dict)  # of logs that are not in folder 0
    places: Mapping[LedgerId, Place] = field(default_factory=dict)

    @property
    def journal_marks(self) -> tuple[JournalMark, ...]:
        """How far the state is in each journal."""
        return self.journals or (JournalMark(self.mark, self.generation, self.journal_number),)

    def encode(self) -> bytes:
        head = self.mark, self.generation, self.journal_number, self.next_log, self.anchor
        parts = [_HEAD.pack(_NAME + b"%d" % _VERSION, *head)]
        for kind, section in _SECTIONS.items():
            body = section.write(self)
            if body:
                parts += (_SECTION.pack(kind, len(section.readers) - 1, len(body)), body)
        data = b"".join(parts)
        return data + crc32c(data).to_bytes(_CRC_BYTES, "big")

    @classmethod
    def decode(cls, data: bytes, path: str) -> State:
        """``path`` is for the errors: CorruptRecord, and StorageError for what only a newer version knows."""
        body = memoryview(data)[:-_CRC_BYTES]
        if len(data) < len(_NAME) + 1 + _CRC_BYTES or crc32c(body) != int.from_bytes(data[-_CRC_BYTES:], "big"):
            raise CorruptRecord("the state file is damaged", path=path, bytes=len(data))
        version = version_of(data[: len(_NAME) + 1], _NAME)
        try:
            if version == _VERSION:
                _, mark, generation, number, next_log, anchor = _HEAD.unpack_from(body)
                contents = dict(_sections(body, path))
                return cls(mark, generation, next_log, anchor=anchor, journal_number=number, **contents)
            if version in _BEFORE:
                return _decode_before(version, body)
        except struct.error as error:
            raise CorruptRecord(
                "the parts of the state file do not fit together", path=path, bytes=len(data)
            ) from error
        if version is None:
            raise CorruptRecord("this is not a state file", path=path, bytes=len(data))
        raise of_a_newer_version("the state file", path, 0, version=version)


def _sections(body: memoryview, path: str) -> Iterator[tuple[str, Any]]:
    """Decode the fields of a State that are in sections."""
    position = _HEAD.size
    while position < len(body):
        kind, version, size = _SECTION.unpack_from(body, position)
        start = position + _SECTION.size
        section = _SECTIONS.get(kind)
        if section is None or version >= len(section.readers):
            raise of_a_newer_version("a section of the state file", path, position, kind=kind, version=version)
        if size > len(body) - start:
            raise struct.error("a section is cut short")
        position = start + size
        yield section.field, section.readers[version](bytes(body[start:position]))


def _decode_before(version: int, body: memoryview) -> State:
    """Decode a state of a version before sections."""
    head = _BEFORE[version]
    _, mark, generation, next_log, logs, ledgers, deleted, *later = head.unpack_from(body)
    lacking = _NO_CREATION if version == 1 else b""
    ledger_bytes, deleted_bytes = _LEDGER.size - len(lacking), _DELETED.size - len(lacking)
    first = head.size + logs * _LOG.size
    second = first + ledgers * ledger_bytes
    if second + deleted * deleted_bytes != len(body):
        raise struct.error("its counts say another length")
    log_ids = _read_logs(bytes(body[head.size : first]))
    records = _read_ledgers(_each_with(lacking, body[first:second], ledger_bytes))
    deletions = _read_deleted(_each_with(lacking, body[second:], deleted_bytes))
    return State(mark, generation, next_log, log_ids, records, deletions, *later)


def _each_with(end: bytes, body: memoryview, size: int) -> bytes:
    """Return all items of ``size`` bytes, each with ``end``, which it lacks."""
    return b"".join([bytes(body[at : at + size]) + end for at in range(0, len(body), size)]) if end else bytes(body)


def _read_logs(body: bytes) -> tuple[int, ...]:
    return tuple(log for (log,) in _LOG.iter_unpack(body))


def _write_logs(state: State) -> bytes:
    return b"".join(_LOG.pack(log) for log in state.logs)


def _read_ledgers(body: bytes) -> dict[LedgerId, bytes]:
    size = _LEDGER.size
    if len(body) % size or not set(body[_FLAGS_AT::size]) <= set(range((_FENCED | _UNMADE) + 1)):
        raise struct.error("no whole ledgers, or flags that this version of a ledger does not have")
    packed = (body[at : at + size] for at in range(0, len(body), size))
    return {int.from_bytes(each[:8], "big", signed=True): each for each in packed}


def _write_ledgers(state: State) -> bytes:
    return b"".join(state.ledgers.values())


def _read_deleted(body: bytes) -> dict[LedgerId, DeletedLedger]:
    return {ledger: DeletedLedger.of(*deletion) for ledger, *deletion in _DELETED.iter_unpack(body)}


def _write_deleted(state: State) -> bytes:
    return b"".join([deletion.packed(ledger) for ledger, deletion in state.deleted.items()])


def _read_given_up(body: bytes) -> dict[LedgerId, tuple[Creation, ...]]:
    creations = dict[LedgerId, tuple[Creation, ...]]()
    for ledger, creation in _GIVEN_UP.iter_unpack(body):
        creations[ledger] = (*creations.get(ledger, ()), creation)
    return creations


def _write_given_up(state: State) -> bytes:
    return b"".join(
        [_GIVEN_UP.pack(ledger, creation) for ledger, creations in state.given_up.items() for creation in creations]
    )


def _read_lacs(body: bytes) -> dict[LedgerId, bytes]:
    bodies, position = dict[LedgerId, bytes](), 0
    while position < len(body):
        start = position + _LAC_LENGTH.size
        position = start + _LAC_LENGTH.unpack_from(body, position)[0]
        lac_body = body[start:position]
        if position > len(body) or not is_body(lac_body):
            raise struct.error("an explicit LAC is cut short, or as long as none is")
        bodies[ledger_of(lac_body)] = lac_body
    return bodies


def _write_lacs(state: State) -> bytes:
    bodies = state.explicit_lacs.values()
    return b"".join([part for body in bodies for part in (_LAC_LENGTH.pack(len(body)), body)])


def _read_limbo(body: bytes) -> tuple[LedgerId, ...]:
    return tuple(ledger for (ledger,) in _LIMBO.iter_unpack(body))


def _write_limbo(state: State) -> bytes:
    return b"".join([_LIMBO.pack(ledger) for ledger in state.limbo])


class _Section(NamedTuple):
    """A part of the state."""

    field: str  # of a State
    write: Callable[[State], bytes]  # the body, of the newest version
    readers: Sequence[Callable[[bytes], Any]]  # of the bodies of all versions, from 0 on; they raise struct.error


_SECTIONS: Mapping[int, _Section] = {
    1: _Section("logs", _write_logs, (_read_logs,)),
    2: _Section("ledgers", _write_ledgers, (_read_ledgers,)),
    3: _Section("deleted", _write_deleted, (_read_deleted,)),
    4: _Section("given_up", _write_given_up, (_read_given_up,)),
    5: _Section("explicit_lacs", _write_lacs, (_read_lacs,)),
    6: _Section("limbo", _write_limbo, (_read_limbo,)),
    7: _Section("layout", lambda state: state.layout.encode(), (read_layout,)),
    8: _Section("journals", lambda state: write_journals(state.journals), (read_journals,)),
    9: _Section("log_folders", lambda state: write_log_folders(state.log_folders), (read_log_folders,)),
    10: _Section("places", lambda state: write_places(state.places), (read_places,)),
}
