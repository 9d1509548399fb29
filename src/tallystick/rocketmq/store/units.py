"""The units of one queue, in its files: they are written, read and searched. The unit's number is the queue offset.

20 bytes, integers big-endian::

    physical offset 8 | record size 4 | tags code 8

A queue that begins above 0 has fillers before its first unit: offset 0, size 0x7FFFFFFF, tags code 0. Bytes never
written are zeros: no unit has size 0. Source: ``ConsumeQueue``, ``ConsumeQueueStore``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from tallystick.rocketmq.store.files import FileQueue

UNIT = struct.Struct(">qiq")
FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
FILL_AT_ONCE = _READ_AT_ONCE = 4096

Unit = tuple[int, int, int]  # physical offset, record size, tags code


class UnitFiles:
    """Files have units up to ``filled``; what is behind was never written, or does not count.

    Ranges of queue offsets are from ``start`` or ``low`` up to ``stop`` or ``high``, without it.
    """

    def __init__(self, files: FileQueue) -> None:
        self.files, self.filled = files, 0
        self.in_file = files.file_bytes // UNIT.size

    @property
    def first(self) -> int:
        """Where the first file begins."""
        return self.files.first // UNIT.size

    @property
    def limit(self) -> int:
        """Behind the last file."""
        return self.files.limit // UNIT.size

    # Writing

    def append(self, units: bytes, *, hold: bool) -> None:
        """Packed units at ``filled``. ``hold``: see ``FileQueue.hold``. Raises DiskFull: then ``filled`` is as it
        was."""
        self.write(units, self.filled * UNIT.size, hold=hold)
        self.filled += len(units) // UNIT.size

    def write(self, data: bytes, position: int, *, hold: bool = False) -> None:
        """Packed units at a byte of the files, over their borders."""
        file_bytes = self.files.file_bytes
        while len(data) > (room := file_bytes - position % file_bytes):
            self.files.write([data[:room]], position)
            position, data = position + room, data[room:]
        if hold:
            self.files.hold(data, position)
        else:
            self.files.write([data], position)

    def fill(self, stop: int) -> None:
        """Fillers from ``filled`` on. May raise DiskFull."""
        while self.filled < stop:
            count = min(stop - self.filled, FILL_AT_ONCE, self.in_file - self.filled % self.in_file)
            self.files.write([FILLER * count], self.filled * UNIT.size)
            self.filled += count

    # Reading

    def read(self, start: int, stop: int) -> bytes:
        """Packed units."""
        return self.files.read(start * UNIT.size, max(0, stop - start) * UNIT.size)

    def unit(self, offset: int) -> Unit:
        """Returns a filler behind ``filled``; before it the files must have the unit."""
        if offset >= self.filled:
            return 0, FILLER_SIZE, 0
        unit: Unit = UNIT.unpack(self.files.read(offset * UNIT.size, UNIT.size))
        return unit

    def units(self, start: int, stop: int) -> Iterator[tuple[int, Unit]]:
        """Each with its queue offset, up to where the files end."""
        while data := self.read(start, min(stop, start + _READ_AT_ONCE)):
            yield from enumerate(UNIT.iter_unpack(data), start)
            start += len(data) // UNIT.size

    def _backwards(self, low: int, high: int) -> Iterator[tuple[int, Unit]]:
        while high > low:
            start = max(low, high - _READ_AT_ONCE)
            block = list(UNIT.iter_unpack(self.read(start, high)))
            yield from zip(range(start + len(block) - 1, start - 1, -1), reversed(block), strict=True)
            high = start

    def without_fillers(self, low: int, high: int) -> int:
        """Where the last unit before ``high`` ends that is none; ``low`` if all are."""
        last = self.last_message(low, high - 1) if high > low else None
        return low if last is None else last + 1

    def last_message(self, low: int, last: int) -> int | None:
        """The last queue offset from ``low`` to ``last`` that has no filler."""
        if self.unit(last)[1] != FILLER_SIZE:
            return last
        return next((offset for offset, (_, size, _) in self._backwards(low, last) if size != FILLER_SIZE), None)

    def search(
        self, physical: int, low: int, high: int | None = None, *, confirms: Callable[[int, Unit], bool] | None = None
    ) -> int:
        """The first queue offset from ``low`` of a message not before ``physical``; what ``confirms`` denies is none
        before. Returns ``high``, or ``filled``, if there is none.

        Fillers may be anywhere, for a slave became master behind them: each counts as the message before it.
        """
        high = self.filled if high is None else high
        while low < high:
            middle = (low + high) // 2
            message = self.last_message(low, middle)
            if message is None or self._is_before(message, physical, confirms):
                low = middle + 1
            else:
                high = message
        return low

    def _is_before(self, offset: int, physical: int, confirms: Callable[[int, Unit], bool] | None) -> bool:
        unit = self.unit(offset)
        if unit[1] <= 0 or not 0 <= unit[0] < physical:
            return False
        return confirms is None or confirms(offset, unit)

    def behind_expired(self, start: int, log_start: int, log_first: int) -> int:
        """After the leading units whose messages went with their files: these rise, and nothing else confirms them.

        A torn unit may have such an offset, too, but not in its place.
        """
        last = log_start - 1
        for offset, (physical, size, _) in self.units(start, self.filled):
            if size != FILLER_SIZE and (size <= 0 or not last < physical < log_first):
                return offset
            start, last = offset + 1, max(last, physical)
        return start
