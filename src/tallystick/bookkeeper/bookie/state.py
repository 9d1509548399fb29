"""What a bookie keeps of its ledgers and entry logs over a restart: the content of the ``state`` file.

It is replaced whole at each checkpoint (``state_file.py``); integers big-endian::

    magic "TALLYST3" 8 | mark 8 | journal generation 8 | next log 8 | logs 4 | ledgers 4 | deleted 4 | anchor 8 |
    journal number 8
    each log: id 8                                         the entry logs that count; other log files are leftovers
    each ledger: ledger 8 | born 8 | flags 1 | key 20 | creation 8      flags: 1 fenced, 2 unmade
    each deleted: ledger 8 | last access, ms since 1970 8 | creation 8      -2 - creation: it was ahead
    CRC32C of all before 4

"TALLYST2" is the same without journal number, "TALLYST1" also without anchor and creations; both are read, too.

``mark``: journal commits up to this number are in the entry logs and in this file. ``journal generation`` and ``journal
number``: the newest segment that had a commit, and its last one. ``born``: the first entry log that may hold entries of
the ledger, so that entries of a deleted ledger do not come back in a new one with the same id.
``creation``: of the ledger's metadata, as a look found it; UNKNOWN before. It tells the ledger from another one that is
given the same id later. ``anchor``: the creation of the bookie's cookie. Metadata that was copied node by node has new
creations of everything, also of the cookie: then those that are kept say nothing, and are forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord

UNKNOWN: Creation = -1

_MAGIC = b"TALLYST3"
_HEAD, _HEAD_2, _HEAD_1 = (struct.Struct(">8sQQQIII" + later) for later in ("qQ", "q", ""))
_LOG = struct.Struct(">Q")
_LEDGER, _LEDGER_1 = struct.Struct(">qQB20sq"), struct.Struct(">qQB20s")
_DELETED, _DELETED_1 = struct.Struct(">qQq"), struct.Struct(">qQ")
_LAYOUTS = {  # of all versions that are read
    _MAGIC: (_HEAD, _LEDGER, _DELETED),
    b"TALLYST2": (_HEAD_2, _LEDGER, _DELETED),
    b"TALLYST1": (_HEAD_1, _LEDGER_1, _DELETED_1),
}
_FENCED, _UNMADE = 1, 2


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


class Deletion(NamedTuple):
    """A deleted ledger."""

    accessed_ms: int  # since 1970
    creation: Creation = UNKNOWN
    was_ahead: bool = False  # newer than the metadata, and given up: who has the id next may have an older creation

    @classmethod
    def of(cls, accessed_ms: int, noted: Creation = UNKNOWN) -> Deletion:
        """As the state file has it."""
        was_ahead = noted < UNKNOWN
        return cls(accessed_ms, UNKNOWN - 1 - noted if was_ahead else noted, was_ahead)

    def packed(self, ledger: LedgerId) -> bytes:
        noted = UNKNOWN - 1 - self.creation if self.was_ahead else self.creation
        return _DELETED.pack(ledger, self.accessed_ms, noted)


class Kept(NamedTuple):
    """What is known here of an id."""

    creation: Creation
    deleted: bool
    ahead: bool = False  # newer than the metadata, or was so when it was deleted

    @property
    def was_given_up(self) -> bool:
        """Though it was newer than the metadata: that another creation is older says nothing."""
        return self.deleted and self.ahead


@dataclass(frozen=True)
class State:
    """The content of the state file."""

    mark: int = 0
    generation: int = 0  # of the newest journal segment with a commit: a journal without it lost its end
    next_log: int = 1
    logs: tuple[int, ...] = ()
    ledgers: Mapping[LedgerId, bytes] = field(default_factory=dict)  # packed LedgerRecords
    deleted: Mapping[LedgerId, Deletion] = field(default_factory=dict)
    anchor: Creation = UNKNOWN
    journal_number: int = 0  # of the last commit in that segment: one that ends before it lost its end

    def encode(self) -> bytes:
        counts = len(self.logs), len(self.ledgers), len(self.deleted)
        parts = [
            _HEAD.pack(_MAGIC, self.mark, self.generation, self.next_log, *counts, self.anchor, self.journal_number)
        ]
        parts += [_LOG.pack(log) for log in self.logs]
        parts += self.ledgers.values()
        parts += [deletion.packed(ledger) for ledger, deletion in self.deleted.items()]
        data = b"".join(parts)
        return data + crc32c(data).to_bytes(4, "big")

    @classmethod
    def decode(cls, data: bytes) -> State:
        """Raises CorruptRecord."""
        body = memoryview(data)[:-4]
        if len(data) < _HEAD_1.size + 4 or crc32c(body) != int.from_bytes(data[-4:], "big"):
            raise CorruptRecord("the state file is damaged", bytes=len(data))
        if data[:8] not in _LAYOUTS:
            raise CorruptRecord("the state file is damaged, or of a newer version", bytes=len(data))
        head, a_ledger, a_deleted = _LAYOUTS[data[:8]]
        if len(body) < head.size:
            raise CorruptRecord("the state file is damaged", bytes=len(data))
        _, mark, generation, next_log, logs, ledgers, deleted, *later = head.unpack_from(body)
        first = head.size + logs * _LOG.size
        second = first + ledgers * a_ledger.size
        if second + deleted * a_deleted.size != len(body):
            raise CorruptRecord("the state file has another length than its counts say", bytes=len(data))
        return cls(
            mark, generation, next_log,
            tuple(log for (log,) in _LOG.iter_unpack(body[head.size : first])),
            {
                ledger: LedgerRecord(
                    key, born, bool(flags & _FENCED), creation[0] if creation else UNKNOWN, bool(flags & _UNMADE)
                ).packed(ledger)
                for ledger, born, flags, key, *creation in a_ledger.iter_unpack(body[first:second])
            },
            {ledger: Deletion.of(*deletion) for ledger, *deletion in a_deleted.iter_unpack(body[second:])},
            *later,
        )  # fmt: skip
