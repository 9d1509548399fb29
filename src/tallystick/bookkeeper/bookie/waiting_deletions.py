"""The ledgers of a large deletion, which wait before they are deleted, and those that are newer than the metadata.

Restarts must not forget them, so they are in a file, ``waiting-deletions``; those whose entries are to be dropped
(``surplus.py``) are in another one, ``waiting-surplus``. Big-endian::

    magic "TALLYGC2" 8 | bytes of the instance id 2 | groups 4 | instance id
    each group: seconds, a float 8 | ledgers 8 | the id of each ledger 8
    each ledger that is ahead: ledger 8 | creation 8
    CRC32C of all before 4

"TALLYGC1" had no ledgers that are ahead; it is read, and the next file is of the newer version.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress

from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.codec.steps import Steps
from tallystick.errors import CorruptRecord
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk, read_file

_MAGIC, _MAGIC_1 = b"TALLYGC2", b"TALLYGC1"
_HEAD = struct.Struct(">8sHI")
_GROUP = struct.Struct(">dQ")
_AHEAD = struct.Struct(">qq")


def place_of(ledgers: array[int], ledger: LedgerId) -> int:
    """Return where a ledger is among ascending ones, -1 if it is not there."""
    at = bisect_left(ledgers, ledger)
    return at if at < len(ledgers) and ledgers[at] == ledger else -1


def _big_endian(ledgers: array[int]) -> bytes:
    swapped = ledgers[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped.tobytes()


@dataclass
class WaitingDeletions:
    """Ledgers without metadata, in groups that have lacked for equally long, and the ledgers that are ahead of it."""

    instance: str
    groups: list[tuple[float, array[int]]] = field(default_factory=list)  # seconds, ids ascending
    ahead: dict[LedgerId, Creation] = field(default_factory=dict)  # these do not wait: an operator decides

    def proven(self, missing: array[int], elapsed_s: float) -> Steps[None]:
        """These ledgers, ascending, lack now, and no others; the last proof was ``elapsed_s`` ago."""
        still, is_new = [array("q") for _ in self.groups], bytearray(b"\1") * len(missing)
        for count, (group, ledger) in enumerate(self._members(), 1):
            if (place := place_of(missing, ledger)) >= 0 and is_new[place]:
                still[group].append(ledger)
                is_new[place] = False
            if not count % STEP_LEDGERS:
                yield
        groups = [(seconds + elapsed_s, ledgers) for (seconds, _), ledgers in zip(self.groups, still, strict=True)]
        groups.append((0.0, array("q", compress(missing, is_new))))
        self.groups = [group for group in groups if group[1]]

    def drop_due(self, patience_s: float) -> None:
        """Let the ledgers that have lacked for ``patience_s`` wait no longer."""
        self.groups = [(seconds, ledgers) for seconds, ledgers in self.groups if seconds < patience_s]

    def without(self, missing: array[int]) -> Steps[tuple[LedgerId, ...]]:
        """Return those of these ledgers, ascending, that do not wait."""
        is_free = bytearray(b"\1") * len(missing)
        for count, (_, ledger) in enumerate(self._members(), 1):
            if (place := place_of(missing, ledger)) >= 0:
                is_free[place] = False
            if not count % STEP_LEDGERS:
                yield
        return tuple(compress(missing, is_free))

    def _members(self) -> Iterator[tuple[int, LedgerId]]:
        """Return all ledgers that wait, each with the place of its group."""
        return ((group, ledger) for group, (_, ledgers) in enumerate(self.groups) for ledger in ledgers)

    @property
    def count(self) -> int:
        return sum(len(ledgers) for _, ledgers in self.groups)

    @property
    def longest_s(self) -> float:
        return max((seconds for seconds, _ in self.groups), default=0.0)

    def encode(self) -> bytes:
        """Return the content of the file."""
        instance = self.instance.encode()
        parts = [_HEAD.pack(_MAGIC, len(instance), len(self.groups)), instance]
        for seconds, ledgers in self.groups:
            parts += [_GROUP.pack(seconds, len(ledgers)), _big_endian(ledgers)]
        parts += [_AHEAD.pack(ledger, creation) for ledger, creation in self.ahead.items()]
        data = b"".join(parts)
        return data + crc32c(data).to_bytes(4, "big")

    @classmethod
    def decode(cls, data: bytes) -> WaitingDeletions:
        """Read the content of the file. Raises CorruptRecord: the wait then begins anew."""
        if len(data) < _HEAD.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
            raise CorruptRecord("the file of ledgers that wait for their deletion is damaged", bytes=len(data))
        magic, size, count = _HEAD.unpack_from(data)
        if magic not in (_MAGIC, _MAGIC_1):
            raise CorruptRecord("this is no file of ledgers that wait for their deletion")
        position, groups = _HEAD.size + size, []
        for _ in range(count):
            seconds, ledgers = _GROUP.unpack_from(data, position)
            position += _GROUP.size
            groups.append((seconds, array("q", struct.unpack_from(f">{ledgers}q", data, position))))
            position += 8 * ledgers
        return cls(data[_HEAD.size : _HEAD.size + size].decode(), groups, dict(_AHEAD.iter_unpack(data[position:-4])))


class WaitingFile:
    """The file of one kind of deletions."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self._path, self._saved = disk, path, b""

    def read(self) -> WaitingDeletions | None:
        """Returns None if there is none. Raises CorruptRecord: the wait then begins anew."""
        return WaitingDeletions.decode(read_file(self._disk, self._path)) if self._disk.exists(self._path) else None

    def begin(self, waiting: WaitingDeletions) -> None:
        """Take this for what is saved: a start has nothing else to say."""
        self._saved = waiting.encode()

    def write(self, waiting: WaitingDeletions) -> None:
        """Save what waits, if it is not what was saved last; nothing changes it meanwhile. Raises StorageError."""
        if (data := waiting.encode()) != self._saved:
            write_atomic(self._disk, self._path, data)
            self._saved = data
