"""How far a bookie's disk is, kept in the metadata: a disk that is behind that lost what it acknowledged (Q15).

At each start and each orderly stop, and every 10 s in which something was written, the bookie says how often it was
started and which commit of its journal is synced. Its folders have the number of the start, too. An older copy of a
disk, or an empty one, has a lower number, or the same one and a shorter journal: the bookie does not start with it. A
copy that is younger than what was said last cannot be told from the disk itself.

::

    in the metadata    start: <number>\n position: <commit>\n, and of several journals: positions: <commit>,<commit>\n
    <folder>/start     <number> <its CRC32C, hexadecimal>\n
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.cookies import START_FILE, folder_of
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Version
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord, DiskFull, InvalidCookie, MetadataConflict, MetadataError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk, read_file
from tallystick.runtime.events import Events

SAY_EVERY_S = 10.0

_BEHIND = (
    "this disk is older than what the bookie acknowledged, so it would deny entries that it had: find its own disk, or "
    "start it with `tally bookie run --rejoin`, which fetches what it lacks from the other replicas"
)


def _encoded(start: int) -> bytes:
    """Return the content of a folder's file."""
    number = b"%d" % start
    return number + b" %08x\n" % crc32c(number)


def _text(positions: Sequence[int]) -> str:
    return ",".join(map(str, positions))


def stored_start(disk: Disk, path: str) -> int:
    """Return the number of the last start, 0 if there was none. Raises CorruptRecord."""
    if not disk.exists(path):
        return 0
    data = read_file(disk, path)
    number = data.split(b" ")[0]
    if number.isdigit() and data == _encoded(int(number)):
        return int(number)
    raise CorruptRecord("the number of the last start is damaged", path=path)


@dataclass(frozen=True)
class Progress:
    """How far a disk is. ``positions`` are the numbers of the last synced commit of each journal."""

    start: int = 0
    positions: tuple[int, ...] = (0,)

    def encode(self) -> bytes:
        more = f"positions: {','.join(map(str, self.positions))}\n" if len(self.positions) > 1 else ""
        return f"start: {self.start}\nposition: {self.positions[0]}\n{more}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Progress:
        """Lines of a later version are passed over. Raises MetadataError."""
        fields = dict(line.split(": ", 1) for line in data.decode(errors="replace").splitlines() if ": " in line)
        try:
            positions = fields.get("positions", fields["position"]).split(",")
            return cls(int(fields["start"]), tuple(map(int, positions)))
        except (KeyError, ValueError):
            raise MetadataError("what the metadata has of this bookie's progress cannot be read") from None

    def is_behind(self, known: Progress) -> bool:
        """Return whether a disk that is so far is older than one that was as far as ``known``."""
        if self.start != known.start:
            return self.start < known.start
        return any(mine < theirs for mine, theirs in zip(self.positions, known.positions, strict=False))


class ProgressRecord:
    """What is known of one bookie's progress, made by ``read``. ``check`` it, then ``begin``; then ``says`` is an
    endless task, and ``say`` the last word."""

    def __init__(
        self,
        driver: MetadataDriver,
        disk: Disk,
        folders: Sequence[str],
        bookie: BookieId,
        events: Events,
        known: Progress,
        version: Version | None,
    ) -> None:
        self._driver, self._disk, self._bookie, self._events = driver, disk, bookie, events
        self._paths = {folder: os.path.join(folder_of(folder), START_FILE) for folder in folders}
        self._known, self._version = known, version
        self._damage: CorruptRecord | None = None
        self._start = min(self._stored(path) for path in self._paths.values())
        self._began = False

    @classmethod
    async def read(
        cls, driver: MetadataDriver, disk: Disk, folders: Sequence[str], bookie: BookieId, events: Events
    ) -> ProgressRecord:
        """Read what the metadata and the folders have. Raises MetadataError, StorageError."""
        node = await driver.read_progress(bookie)
        progress = Progress() if node is None else Progress.decode(node.value)
        return cls(driver, disk, folders, bookie, events, progress, None if node is None else node.version)

    def _stored(self, path: str) -> int:
        try:
            return stored_start(self._disk, path)
        except CorruptRecord as error:
            self._damage = error
            return 0

    def check(self, positions: tuple[int, ...] | None = None) -> None:
        """Raises InvalidCookie for a disk that is behind, CorruptRecord for one whose number is damaged; ``positions``:
        those of its journals, once they are known."""
        if self._damage is not None:
            raise self._damage
        disk_progress = Progress(self._start, self._known.positions if positions is None else positions)
        if disk_progress.is_behind(self._known):
            raise InvalidCookie(
                _BEHIND,
                bookie=self._bookie,
                starts=f"{disk_progress.start} of {self._known.start}",
                position="unread" if positions is None else f"{_text(positions)} of {_text(self._known.positions)}",
            )

    def lags(self, folders: Collection[str], positions: tuple[int, ...], lost_journals: Collection[int]) -> bool:
        """Return whether any of these folders, or a journal that is not lost, is older than what the metadata knows."""
        paths = [path for folder, path in self._paths.items() if folder in folders]
        kept = tuple(
            known if journal in lost_journals else position
            for journal, (position, known) in enumerate(zip(positions, self._known.positions, strict=False))
        )
        progress = Progress(min((self._stored(path) for path in paths), default=0), kept)
        return self._damage is not None or progress.is_behind(self._known)

    def join(self, folders: Collection[str]) -> None:
        """Give folders that come to those of the bookie the number of its last start. Raises StorageError."""
        new_paths = [path for folder, path in self._paths.items() if folder in folders]
        self._start = min(self._stored(path) for path in self._paths.values() if path not in new_paths)
        for path in new_paths:
            write_atomic(self._disk, path, _encoded(self._start))

    def renew(self) -> None:
        """Count the first start of a new bookie that has the id of an older one: its disk is younger than all disks of
        that. Raises StorageError."""
        self._count(max(self._start, self._known.start) + 1)

    def _count(self, start: int) -> None:
        for path in self._paths.values():
            write_atomic(self._disk, path, _encoded(start))
        self._start = start

    async def begin(self, positions: tuple[int, ...], *, rejoins: bool = False) -> None:
        """Count this start, on the disk first. Raises MetadataError, StorageError.

        A full disk keeps its number: it is told from its copies by its journal alone, until a start finds room. Of one
        that ``rejoins`` the journal says nothing: what it lost had the same number, and may be longer.
        """
        try:
            self._count(max(self._start, self._known.start) + 1)
        except DiskFull as error:
            if rejoins or self._start < self._known.start:  # it would let older disks in
                raise
            self._events.emit("start not counted", bookie=self._bookie, reason=str(error))
        await self._write(Progress(self._start, positions))
        self._began = True

    async def _write(self, progress: Progress) -> None:
        try:
            await self._driver.write_progress(self._bookie, progress.encode(), self._version)
        except MetadataConflict:
            # Our own change, whose answer was lost, or that of another process on a copy of this disk.
            node = await self._driver.read_progress(self._bookie)
            if node is not None and node.value != progress.encode():
                start = Progress.decode(node.value).start
                if start > progress.start or (start == progress.start and not self._began):
                    raise MetadataConflict("another process started this bookie on a copy of its disk") from None
            self._version = None if node is None else node.version
            await self._driver.write_progress(self._bookie, progress.encode(), self._version)
        self._known, self._version = progress, 0 if self._version is None else self._version + 1

    async def says(self, positions: Callable[[], tuple[int, ...]]) -> None:
        """Say how far the disk is, for ever. Raises MetadataConflict: the bookie must stop."""
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            await self.say(positions())

    async def say(self, positions: tuple[int, ...]) -> None:
        """Say how far the disk is, if that is news. Raises MetadataConflict; other failures are told, and the next time
        makes up for them."""
        if not self._began or not Progress(self._start, self._known.positions).is_behind(
            Progress(self._start, positions)
        ):
            return
        try:
            await self._write(Progress(self._start, positions))
        except MetadataConflict:
            raise
        except MetadataError as error:
            self._events.emit("progress not told", bookie=self._bookie, reason=str(error))
