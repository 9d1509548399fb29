"""What a bookie knows about whole ledgers: key, fence, and which were deleted. Decides who may add (Q11, Q12).

``state`` file, replaced whole at each checkpoint (temporary file, sync, rename, folder sync); integers big-endian::

    magic "TALLYST1" 8 | mark 8 | journal generation 8 | next log 8 | logs 4 | ledgers 4 | deleted 4
    each log: id 8                                         the entry logs that count; other log files are leftovers
    each ledger: ledger 8 | born 8 | flags 1 | key 20      flags: 1 fenced
    each deleted: ledger 8 | last access, ms since 1970 8
    CRC32C of all before 4

``mark``: journal commits up to this number are in the entry logs and in this file. ``born``: the first entry log that
may hold entries of the ledger, so that entries of a deleted ledger do not come back in a new one with the same id.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.entry_log import Piece
from tallystick.bookkeeper.wire.v2 import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord

_MAGIC = b"TALLYST1"
_HEAD = struct.Struct(">8sQQQIII")
_LOG = struct.Struct(">Q")
_LEDGER = struct.Struct(">qQB20s")
_DELETED = struct.Struct(">qQ")
_FENCED = 1


@dataclass(slots=True)
class Ledger:
    key: bytes = field(repr=False)
    born: int
    fenced: bool = False
    looked: bool = False  # at its metadata, in this life of the process
    fence_commit: int = 0  # the journal commit with the fence
    last: EntryId = NO_ENTRY  # the highest entry stored
    pages: index.Pages = field(default_factory=index.Pages, repr=False)  # of entries in entry logs


@dataclass(frozen=True)
class LedgerRecord:
    """A ledger as the state file has it."""

    key: bytes = field(repr=False)
    born: int
    fenced: bool


@dataclass(frozen=True)
class State:
    """The content of the state file."""

    mark: int = 0
    generation: int = 0  # of the newest journal segment with a commit: a journal without it lost its end
    next_log: int = 1
    logs: tuple[int, ...] = ()
    ledgers: Mapping[LedgerId, LedgerRecord] = field(default_factory=dict)
    deleted: Mapping[LedgerId, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        counts = len(self.logs), len(self.ledgers), len(self.deleted)
        parts = [_HEAD.pack(_MAGIC, self.mark, self.generation, self.next_log, *counts)]
        parts += [_LOG.pack(log) for log in self.logs]
        parts += [
            _LEDGER.pack(number, record.born, _FENCED if record.fenced else 0, record.key)
            for number, record in self.ledgers.items()
        ]
        parts += [_DELETED.pack(ledger, accessed) for ledger, accessed in self.deleted.items()]
        data = b"".join(parts)
        return data + crc32c(data).to_bytes(4, "big")

    @classmethod
    def decode(cls, data: bytes) -> State:
        """Raises CorruptRecord."""
        body = memoryview(data)[:-4]
        if len(data) < _HEAD.size + 4 or crc32c(body) != int.from_bytes(data[-4:], "big") or data[:8] != _MAGIC:
            raise CorruptRecord("the state file is damaged", bytes=len(data))
        _, mark, generation, next_log, logs, ledgers, deleted = _HEAD.unpack_from(body)
        first = _HEAD.size + logs * _LOG.size
        second = first + ledgers * _LEDGER.size
        if second + deleted * _DELETED.size != len(body):
            raise CorruptRecord("the state file has another length than its counts say", bytes=len(data))
        return cls(
            mark, generation, next_log,
            tuple(log for (log,) in _LOG.iter_unpack(body[_HEAD.size : first])),
            {n: LedgerRecord(k, born, bool(f & _FENCED)) for n, born, f, k in _LEDGER.iter_unpack(body[first:second])},
            dict(_DELETED.iter_unpack(body[second:])),
        )  # fmt: skip


def holds(alive: Mapping[LedgerId, Ledger], ledger: LedgerId, log_id: int) -> bool:
    """Whether a log's entries of this ledger belong to the ledger that exists now."""
    found = alive.get(ledger)
    return found is not None and found.born <= log_id


class Ledgers:
    """The ledgers that this bookie has, and the ones it had."""

    def __init__(self, state: State) -> None:
        self.next_log = state.next_log
        self.alive = {number: Ledger(r.key, r.born, r.fenced) for number, r in state.ledgers.items()}
        self.deleted = dict(state.deleted)
        self._last_commits: dict[LedgerId, int] = {}  # of deleted ledgers: those that the journal may still have

    def admit(self, ledger: LedgerId, key: bytes, now_ms: int, *, recovery: bool = False) -> Code:
        """May entries be added? Knows the ledger from now on if it did not, by this key (Q11)."""
        found = self.alive.get(ledger)
        if found is None:
            if ledger < 0:
                return Code.BAD_REQUEST
            if ledger in self.deleted:
                # A writer that outlived its ledger must not bring it back to life: its entries would be acknowledged
                # into a ledger that no metadata names.
                self.deleted[ledger] = now_ms
                return Code.FENCED
            self.create(ledger, key)
            return Code.OK
        if not hmac.compare_digest(found.key, key):
            return Code.UNAUTHORIZED
        return Code.FENCED if found.fenced and not recovery else Code.OK

    def fence(self, ledger: LedgerId, key: bytes, now_ms: int) -> Code:
        """Refuse ordinary adds from now on, also to a ledger not heard of before."""
        code = self.admit(ledger, key, now_ms, recovery=True)
        if code == Code.OK:
            self.alive[ledger].fenced = True
        return Code.NO_LEDGER if code == Code.FENCED else code

    def were_looked_at(self, ledgers: Iterable[LedgerId]) -> bool:
        """Whether ``needs_look`` is False for all, of ledgers that are written all the time."""
        alive = self.alive
        return all((found := alive.get(ledger)) is not None and found.looked for ledger in ledgers)

    def needs_look(self, ledger: LedgerId, entry: EntryId) -> bool:
        """Whether an ordinary add must wait for a look at the metadata; not where it is refused in any case."""
        found = self.alive.get(ledger)
        if found is None:
            return entry > 0 and ledger >= 0 and ledger not in self.deleted
        return not (found.looked or found.fenced)

    def touch(self, ledger: LedgerId, now_ms: int) -> None:
        """Somebody asked for a ledger that is not here: a deleted one is remembered for longer."""
        if ledger in self.deleted:
            self.deleted[ledger] = now_ms

    def create(self, ledger: LedgerId, key: bytes) -> Ledger:
        found = self.alive[ledger] = Ledger(key, self.next_log)
        return found

    def delete(self, ledger: LedgerId, now_ms: int, commit: int) -> None:
        """Forget a ledger but for its id. Up to ``commit`` the journal may have adds to it."""
        del self.alive[ledger]
        self.deleted[ledger] = now_ms
        self._last_commits[ledger] = commit

    def skipped(self, ledger: LedgerId, commit: int) -> bool:
        """Whether a ledger was deleted after this commit of the journal, which has adds to it or its fence, was
        written: a replay skips them."""
        if ledger not in self.deleted:
            return False
        self._last_commits[ledger] = commit
        return True

    def enter(self, log_id: int, pieces: Iterable[Piece]) -> None:
        """Put a log's entries into the index. Logs come by ascending id: the newest version of an entry wins."""
        for piece in pieces:
            if holds(self.alive, piece.ledger, log_id):
                found = self.alive[piece.ledger]
                index.put(found.pages, piece.page, piece.slot, piece.locations)
                found.last = max(found.last, index.last_of(piece.page, piece.slot, piece.locations))

    def records(self) -> dict[LedgerId, LedgerRecord]:
        return {number: LedgerRecord(found.key, found.born, found.fenced) for number, found in self.alive.items()}

    def remembered(self, live: Container[LedgerId], oldest_ms: int, most: int, mark: int) -> dict[LedgerId, int]:
        """The deleted ledgers to remember: none that exists again or that nobody asked for since ``oldest_ms``.

        But each whose adds a replay from ``mark`` would still find: they would come back in a new ledger with this id.
        """
        due = {ledger: ms for ledger, ms in self.deleted.items() if self._last_commits.get(ledger, 0) <= mark}
        kept = sorted((ms, ledger) for ledger, ms in due.items() if ledger not in live and ms >= oldest_ms)[-most:]
        bound = {ledger: ms for ledger, ms in self.deleted.items() if ledger not in due}
        return bound | {ledger: ms for ms, ledger in kept}

    def remember_deleted(self, remembered: Container[LedgerId]) -> None:
        """Forget the other deleted ledgers."""
        for ledger in [ledger for ledger in self.deleted if ledger not in remembered]:
            del self.deleted[ledger]
            self._last_commits.pop(ledger, None)
