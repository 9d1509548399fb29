"""The ledgers of a large deletion, which wait before they are deleted, and those that are newer than the metadata.

Restarts must not forget them, so they are in a file, ``waiting-deletions``, big-endian::

    magic "TALLYGC2" 8 | bytes of the instance id 2 | groups 4 | instance id
    each group: seconds, a float 8 | ledgers 8 | the id of each ledger 8
    each ledger that is ahead: ledger 8 | creation 8
    CRC32C of all before 4

"TALLYGC1" had no ledgers that are ahead; it is read, and the next file is of the newer version.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord

_MAGIC, _MAGIC_1 = b"TALLYGC2", b"TALLYGC1"
_HEAD = struct.Struct(">8sHI")
_GROUP = struct.Struct(">dQ")
_AHEAD = struct.Struct(">qq")


@dataclass
class WaitingDeletions:
    """Ledgers without metadata, in groups that have lacked for equally long, and the ledgers that are ahead of it."""

    instance: str
    groups: list[tuple[float, array[int]]] = field(default_factory=list)  # seconds, ids ascending
    ahead: dict[LedgerId, Creation] = field(default_factory=dict)  # these do not wait: an operator decides

    def proven(self, missing: Sequence[LedgerId], elapsed_s: float) -> None:
        """These ledgers lack now, and no others; the last proof was ``elapsed_s`` ago."""
        rest, groups = set(missing), []
        for seconds, ledgers in self.groups:
            still = array("q", [ledger for ledger in ledgers if ledger in rest])
            rest.difference_update(still)
            if still:
                groups.append((seconds + elapsed_s, still))
        if rest:
            groups.append((0.0, array("q", sorted(rest))))
        self.groups = groups

    def take_due(self, patience_s: float) -> list[LedgerId]:
        """Take out the ledgers that have lacked for ``patience_s``."""
        due = [ledger for seconds, ledgers in self.groups if seconds >= patience_s for ledger in ledgers]
        self.groups = [(seconds, ledgers) for seconds, ledgers in self.groups if seconds < patience_s]
        return due

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
            parts += [_GROUP.pack(seconds, len(ledgers)), struct.pack(f">{len(ledgers)}q", *ledgers)]
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
