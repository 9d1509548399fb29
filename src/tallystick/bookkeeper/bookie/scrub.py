"""How far a scrub is, kept over restarts: ``<ledger folder>/tally/scrub``, lines of text, replaced as a whole::

    TALLYSC1
    round: <when it began, ms since 1970> <bytes that it has to read> <bytes read>
    cursor: <entry log> <chunk>                      the first that is not read yet; 0 0 between two rounds
    ended: <when the last whole round ended, ms since 1970; 0 if none has>
    damaged: <ledger> <entry>                        each, as far as it is not repaired
    <CRC32C of all before, hexadecimal>

A file that is damaged, or of a newer version, is passed over: a round begins anew, which costs nothing but time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.checksum import crc32c

SCRUB_FILE = "scrub"
COVERED_S = 14 * 24 * 3600.0  # a bookie's disk is read at least so often
EVERY_S = 7 * 24 * 3600.0  # a round begins so long after the last one began

_MAGIC = "TALLYSC1"


@dataclass(frozen=True)
class ScrubProgress:
    """How far the scrub is. Times are milliseconds since 1970."""

    began_ms: int = 0
    total_bytes: int = 0
    read_bytes: int = 0
    log: int = 0  # of the cursor; 0: no round is under way
    chunk: int = 0
    ended_ms: int = 0
    damaged: tuple[tuple[LedgerId, EntryId], ...] = ()

    def encode(self) -> bytes:
        lines = [
            _MAGIC,
            f"round: {self.began_ms} {self.total_bytes} {self.read_bytes}",
            f"cursor: {self.log} {self.chunk}",
            f"ended: {self.ended_ms}",
            *(f"damaged: {ledger} {entry}" for ledger, entry in self.damaged),
            "",
        ]
        data = "\n".join(lines).encode()
        return data + b"%08x\n" % crc32c(data)

    @classmethod
    def decode(cls, data: bytes) -> ScrubProgress | None:
        """Return None for what is damaged, or of a newer version."""
        body, checksum = data[:-9], data[-9:]
        if checksum != b"%08x\n" % crc32c(body) or not body.startswith(_MAGIC.encode() + b"\n"):
            return None
        fields = dict[str, list[int]]()
        damaged = list[tuple[LedgerId, EntryId]]()
        try:
            for line in body.decode().splitlines()[1:]:
                name, _, numbers = line.partition(": ")
                values = [int(number) for number in numbers.split()]
                if name == "damaged":
                    damaged.append((values[0], values[1]))
                else:
                    fields[name] = values
            began_ms, total_bytes, read_bytes = fields["round"]
            (log, chunk), (ended_ms,) = fields["cursor"], fields["ended"]
            return cls(began_ms, total_bytes, read_bytes, log, chunk, ended_ms, tuple(damaged))
        except (KeyError, ValueError, IndexError):
            return None

    @property
    def is_running(self) -> bool:
        return self.log > 0

    def begin(self, now_ms: int, total_bytes: int) -> ScrubProgress:
        return replace(self, began_ms=now_ms, total_bytes=total_bytes, read_bytes=0, log=1, chunk=0)

    def end(self, now_ms: int) -> ScrubProgress:
        return replace(self, ended_ms=now_ms, log=0, chunk=0)

    def due_in_s(self, now_ms: int) -> float:
        """Return after how many seconds the next round begins, 0 if one is due or under way."""
        if self.is_running or not self.began_ms:
            return 0.0
        return max(0.0, EVERY_S - (now_ms - self.began_ms) / 1000)

    @property
    def percent(self) -> int:
        """How much of the round is read; 100 between two rounds."""
        if not self.is_running:
            return 100 if self.ended_ms else 0
        return min(99, 100 * self.read_bytes // self.total_bytes) if self.total_bytes else 0

    def ends_ms(self, now_ms: int, bytes_per_s: float) -> int:
        """Return when this round ends at this pace; 0 between two rounds."""
        rest = max(0, self.total_bytes - self.read_bytes)
        return now_ms + int(1000 * rest / bytes_per_s) if self.is_running else 0

    def shown(self, ends_ms: int) -> str:
        """Return what the registration says: per cent of this round, when the last one ended and when this one will,
        milliseconds since 1970, 0 where there is none."""
        return f"{self.percent} {self.ended_ms} {ends_ms}"
