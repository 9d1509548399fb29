"""Real bookies in this process, and a client of bytes to talk to them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest, master_key
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.frames import encode_adds
from tallystick.runtime.disk import Disk, OsDisk
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine
from tallystick.runtime.outside import Outside

KEY = master_key(b"pw")
OTHER_KEY = master_key(b"another")
SMALL = StorageSettings(journal_segment_bytes=1024 * 1024)  # quick to fill with zeros

_names = itertools.count()


def adds(ledger: int, entries: Iterable[int], payload: bytes = b"abc", key: bytes = KEY, flags: int = 0) -> bytes:
    """ADD frames, digest CRC32C."""
    digest = Digest.of(DigestType.CRC32C)
    frames = (
        encode_adds(key, ledger, entry, entry - 1, 0, [payload], digest.compute, digest.size, flags)[0].joined(0, 1)
        for entry in entries
    )
    return b"".join(frames)


def read(ledger: int, entry: int, key: bytes | None = None, version: int = 2) -> bytes:
    """A READ frame; with a key it fences."""
    return v2.ReadFrame(ledger, entry, key, v2.RequestFlag.FENCE if key else 0, version).encode()


def codes(data: bytes) -> list[tuple[int, Code, int, int]]:
    """(opcode, code, ledger, entry) of the answers to ADD and READ in a buffer of whole frames."""
    found, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        answer = v2.decode_response(data[position + 4 : position + 4 + size])
        assert isinstance(answer, v2.Response)
        found.append((answer.op, answer.code, answer.ledger, answer.entry))
        position += 4 + size
    return found


@dataclass
class Peer:
    """One connection; speaks in bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> bytes | None:
        """The frame that answers, or None when the connection was closed instead."""
        self.writer.write(request)
        return await self.frame()

    async def frame(self) -> bytes | None:
        try:
            async with asyncio.timeout(10):
                head = await self.reader.readexactly(4)
                return head + await self.reader.readexactly(int.from_bytes(head, "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def answer(self, request: bytes) -> v2.Response:
        """The same, opened."""
        frame = await self.ask(request)
        assert frame is not None, "closed"
        answer = v2.decode_response(frame[4:])
        assert isinstance(answer, v2.Response)
        return answer

    async def code(self, request: bytes) -> Code:
        return (await self.answer(request)).code

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class Home:
    """The folders, metadata and events of one bookie; it can be started in them again and again."""

    path: Path
    cluster: str = field(default_factory=lambda: f"home-{next(_names)}")
    bookie: str = "b0"
    disk: Disk = field(default_factory=OsDisk)
    storage: StorageSettings = SMALL
    events: list[Event] = field(default_factory=list)
    looks: bool = False  # at the metadata of ledgers: most tests add to ledgers that have none

    @property
    def settings(self) -> BookieSettings:
        return BookieSettings(
            f"memory://{self.cluster}",
            (str(self.path / "journal"),),
            (str(self.path / "ledgers"),),
            port=0,
            bookie_id=self.bookie,
        )

    async def found(self) -> ClusterMetadata:
        """Make the cluster."""
        driver = ClusterMetadata(MemoryStore(self.cluster))
        await driver.init_cluster()
        return driver

    def outside(self) -> Outside:
        return replace(this_machine(Events(self.events.append)), disk=self.disk)

    async def start(self, **changes: Any) -> Bookie:
        bookie = await start_bookie(replace(self.settings, **changes), self.outside(), self.storage)
        bookie.looks.active = self.looks
        return bookie

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[Bookie]:
        bookie = await self.start(**changes)
        try:
            yield bookie
        finally:
            await bookie.stop()

    def copied_as_killed(self, name: str) -> Path:
        """Copy the folders while the bookie runs, beside them: without files that it writes anew now, under a name
        that goes soon. A start after a kill takes none of those for whole."""
        copy = self.path.parent / name
        shutil.copytree(self.path, copy, ignore=shutil.ignore_patterns("*.new"))
        return copy

    def heard(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@contextlib.asynccontextmanager
async def talking(bookie: Bookie, source: str = "127.0.0.1") -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection(*bookie.address, local_addr=(source, 0)))
    try:
        yield peer
    finally:
        await peer.close()


@dataclass
class SpyDisk:
    """The machine's disk with a hook before each read, write, sync and close of a file."""

    before: Callable[[str, str], None]  # (action, path); raises what the disk shall raise
    real: Disk = field(default_factory=OsDisk)

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> Any:
        opened = self.real.open(path, create=create, direct=direct, durable=durable)
        return _SpyFile(opened, path, self.before)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class _SpyFile:
    def __init__(self, real: Any, path: str, before: Callable[[str, str], None]) -> None:
        self._real, self._path, self._before = real, path, before

    def write(self, buffers: Any, offset: int) -> int:
        self._before("write", self._path)
        written: int = self._real.write(buffers, offset)
        return written

    def read(self, size: int, offset: int) -> bytes:
        self._before("read", self._path)
        data: bytes = self._real.read(size, offset)
        return data

    def sync(self) -> None:
        self._before("sync", self._path)
        self._real.sync()

    def close(self) -> None:
        self._before("close", self._path)
        self._real.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
