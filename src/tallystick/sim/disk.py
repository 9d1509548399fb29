"""A simulated file system that crashes, fills up, fails and rots on command; repeatable from a seed.

What a process wrote is in the page cache, what it synced is on the medium. ``kill`` (a process dies) leaves the cache.
``power_loss`` leaves the medium and whatever else the disk happened to write: of the writes since the last sync of a
file each is lost, kept or torn at any byte, whatever became of the others; of the new names, renames and deletions
since the last sync of a folder each is lost or kept. A failed sync leaves its writes readable and loses them for good;
a later sync that succeeds does not save them.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tallystick.errors import DiskFull, StorageError, UsageError
from tallystick.runtime.disk import BLOCK_BYTES, Buffer, Usage

PLENTY = 1 << 40  # bytes of a disk that is never full


class Crashed(BaseException):
    """The process or the machine stopped in the middle of an operation. No code under test catches it."""


@dataclass(frozen=True)
class _Write:
    offset: int
    data: bytes


@dataclass(frozen=True)
class _Truncate:
    size: int


@dataclass(eq=False)
class _Inode:
    """A file: what is read now, what is on the medium, and how one becomes the other."""

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Write | _Truncate] = field(default_factory=list)


_Node = _Inode | None  # None: a folder


@dataclass(frozen=True)
class _Link:
    """A change of a folder: ``path`` now is ``node``, and ``source`` (of a rename) is gone."""

    path: str
    node: _Node
    source: str | None = None


@dataclass(frozen=True)
class _Unlink:
    path: str


def _apply_write(content: bytearray, change: _Write | _Truncate) -> None:
    end = change.size if isinstance(change, _Truncate) else change.offset + len(change.data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    if isinstance(change, _Truncate):
        if end < len(content):
            del content[end:]
    else:
        content[change.offset : end] = change.data


def _apply_name(names: dict[str, _Node], change: _Link | _Unlink) -> None:
    if isinstance(change, _Unlink):
        names.pop(change.path, None)
        return
    if change.source is not None:
        names.pop(change.source, None)
    names[change.path] = change.node


class SimFile:
    """A file opened before the last crash is dead: every use of it raises Crashed. Using a closed one is a bug."""

    def __init__(self, disk: SimDisk, path: str, inode: _Inode, direct: bool, durable: bool) -> None:
        self._disk, self._path, self._inode, self._life = disk, path, inode, disk.life
        self._direct, self._durable = direct, durable
        disk.open_files.add(self)

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        assert not (self._direct and (offset % BLOCK_BYTES or len(data) % BLOCK_BYTES)), "a direct write of half blocks"
        is_cut = self._enter("write")
        room = self._disk.room_for(self._inode, offset + len(data))
        part = data[: len(data) - room] if room else data
        if is_cut:
            part = part[: self._disk.random.randint(0, len(part))]
        change = _Write(offset, part)
        _apply_write(self._inode.cached, change)
        self._inode.pending.append(change)
        if is_cut:
            self._disk.stop()
        if room:
            raise DiskFull("cannot write: no space left on the simulated disk", path=self._path)
        if self._durable:
            self.sync()
        return len(data)

    def read(self, size: int, offset: int) -> bytes:
        if self._enter("read"):
            self._disk.stop()
        return bytes(self._inode.cached[offset : offset + size])

    def sync(self) -> None:
        try:
            cut = self._enter("sync")
        except StorageError:
            self._inode.pending.clear()  # the kernel calls the pages clean although the disk never had them
            raise
        if cut:
            self._disk.stop()
        for change in self._inode.pending:
            _apply_write(self._inode.durable, change)
        self._inode.pending.clear()

    def size(self) -> int:
        self._require_open()
        return len(self._inode.cached)

    def truncate(self, size: int) -> None:
        if self._enter("truncate"):
            self._disk.stop()
        _apply_write(self._inode.cached, _Truncate(size))
        self._inode.pending.append(_Truncate(size))

    def allocate(self, size: int) -> None:
        if self._enter("allocate"):
            self._disk.stop()
        if self._disk.room_for(self._inode, size):
            raise DiskFull("cannot allocate: no space left on the simulated disk", path=self._path)
        if size > self.size():
            _apply_write(self._inode.cached, _Truncate(size))
            self._inode.pending.append(_Truncate(size))

    def map(self) -> memoryview:
        if self._enter("map"):
            self._disk.stop()
        return memoryview(self._inode.cached).toreadonly()

    def close(self) -> None:
        """Closing writes nothing. Of a closed file it does nothing."""
        self._disk.open_files.discard(self)

    def _enter(self, operation: str) -> bool:
        cut = self._disk.enter(operation, self._path, self._life)
        self._require_open()
        return cut

    def _require_open(self) -> None:
        """The real one's descriptor may be another file's by now."""
        assert self in self._disk.open_files or self._life != self._disk.life, f"{self._path} is used after its close"


class _InTurn:
    """What two threads would do at the same time, one after the other; which is first is never sure."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def both(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        for call in (first, second) if self._random.random() < 0.5 else (second, first):
            call()

    def close(self) -> None:
        """There is no thread."""


class _Lock:
    """Of a folder or a file. Held until it is released, or its process is dead."""

    def __init__(self, locks: dict[str, _Lock], path: str) -> None:
        self._locks, self._path = locks, path
        locks[path] = self

    def release(self) -> None:
        if self._locks.get(self._path) is self:
            del self._locks[self._path]


@dataclass
class DiskImage:
    """All that a disk has: the names, those that are durable, and changes that are not."""

    names: dict[str, _Node] = field(default_factory=lambda: {"/": None})
    durable: dict[str, _Node] = field(default_factory=lambda: {"/": None})
    pending: dict[str, list[_Link | _Unlink]] = field(default_factory=dict)


class SimDisk:
    """See the module. ``crash_at`` is the number of the operation that the crash interrupts; ``fault`` may refuse one.

    ``fault`` gets (operation, path) before each operation and returns the error to raise, or None.
    """

    file_type = SimFile

    def __init__(self, rng: random.Random, *, capacity: int = PLENTY) -> None:
        self.random, self.capacity = rng, capacity
        self.operations = 0
        self.crash_at: int | None = None
        self.fault: Callable[[str, str], StorageError | None] | None = None
        self.on_stop: Callable[[], None] | None = None  # settable: calls ``kill`` or ``power_loss``
        self.life = self._losses = 0
        self._is_stopped = False
        self._names: dict[str, _Node] = {"/": None}
        self._durable: dict[str, _Node] = {"/": None}
        self._pending: dict[str, list[_Link | _Unlink]] = {}
        self._inodes: list[_Inode] = []
        self._locks: dict[str, _Lock] = {}
        self.open_files: set[SimFile] = set()

    # What happens to it.

    def kill(self) -> None:
        """The process died; all that it wrote is still in the page cache."""
        self.life += 1
        self._is_stopped, self.crash_at = False, None
        self._locks.clear()
        self.open_files.clear()
        for inode in self._inodes:
            inode.cached = bytearray(inode.cached)  # what it mapped is its own no more

    def power_loss(self) -> None:
        """The machine died: what was not synced is lost, kept or torn."""
        self.kill()
        self._losses += 1
        for changes in self._pending.values():
            for change in changes:
                if self.random.random() < 0.5:
                    _apply_name(self._durable, change)
        self._pending.clear()
        for inode in self._inodes:
            for write in self._survivors(inode.pending):
                _apply_write(inode.durable, write)
            inode.pending.clear()
            inode.cached = bytearray(inode.durable)
        self._durable = {path: node for path, node in self._durable.items() if self._reachable(path)}
        self._names = dict(self._durable)
        self._inodes = [node for node in self._names.values() if node is not None]

    def _survivors(self, pending: list[_Write | _Truncate]) -> list[_Write | _Truncate]:
        survivors: list[_Write | _Truncate] = []
        for change in pending:
            fate = self.random.randrange(3)
            if fate == 1:
                survivors.append(change)
            elif fate == 2 and isinstance(change, _Write):
                first, last = sorted(self.random.randint(0, len(change.data)) for _ in range(2))
                if self.random.random() < 0.5:
                    first = 0
                survivors.append(_Write(change.offset + first, change.data[first:last]))
        return survivors

    def _reachable(self, path: str) -> bool:
        return path == "/" or (os.path.dirname(path) in self._durable and self._reachable(os.path.dirname(path)))

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Rot one bit of a file, on the medium and in the cache."""
        inode = self._inode(path)
        for content in (inode.cached, inode.durable):
            if offset < len(content):
                content[offset] ^= 1 << bit

    def image(self) -> DiskImage:
        """Return what a loss of power now would find, or a little more: to ``become`` later."""
        return DiskImage(*copy.deepcopy((self._names, self._durable, self._pending)))

    def become(self, image: DiskImage) -> None:
        """Lose power, and be another disk at the next start: an older one, or an empty one (``DiskImage()``)."""
        self.power_loss()
        self._names, self._durable, self._pending = image.names, image.durable, image.pending
        self._inodes = [node for node in self._names.values() if node is not None]
        self.power_loss()

    def files(self) -> list[str]:
        """Return the paths of all files that are not empty, sorted."""
        return sorted(path for path, node in self._names.items() if node is not None and node.cached)

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """For those that look: no fault and no crash, and their operations do not count."""
        before = self.operations, self.crash_at, self.fault
        self.crash_at = self.fault = None
        try:
            yield
        finally:
            self.operations, self.crash_at, self.fault = before

    def stop(self) -> NoReturn:
        """The crash is now: ``on_stop`` takes the machine down, or nothing works until ``kill`` or ``power_loss``."""
        if self.on_stop is not None:
            self.on_stop()  # who looks at what dies can still read
        else:
            self._is_stopped = True
        raise Crashed(f"operation {self.operations}")

    def enter(self, operation: str, path: str, life: int | None = None) -> bool:
        """Count an operation; whether the crash interrupts it."""
        if self._is_stopped or (life is not None and life != self.life):
            raise Crashed(f"{operation} after a crash")
        self.operations += 1
        if self.fault is not None and (error := self.fault(operation, path)) is not None:
            raise error
        return self.operations == self.crash_at

    def room_for(self, inode: _Inode, end: int) -> int:
        """By how many bytes a file that reaches to ``end`` is too long for the disk."""
        growth = max(0, end - len(inode.cached))
        return max(0, growth - max(0, self.capacity - self._used_bytes()))

    def _used_bytes(self) -> int:
        return sum(len(node.cached) for node in self._names.values() if node is not None)

    # The interface of ``runtime.disk.Disk``.

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> SimFile:
        self._step("open", path)
        if path not in self._names and create:
            self._inodes.append(_Inode())
            self._change(_Link(path, self._inodes[-1]))
        return self.file_type(self, path, self._inode(path), direct, durable)

    def exists(self, path: str) -> bool:
        return path in self._names

    def listdir(self, path: str) -> list[str]:
        self._step("list", path)
        return sorted(os.path.basename(name) for name in self._names if os.path.dirname(name) == path and name != "/")

    def sizes(self, path: str) -> dict[str, int]:
        self._step("list", path)
        files = ((name, node) for name, node in self._names.items() if os.path.dirname(name) == path)
        return {os.path.basename(name): len(node.cached) for name, node in sorted(files) if node is not None}

    def size(self, path: str) -> int | None:
        self._step("stat", path)
        node = self._names.get(path)
        return None if node is None else len(node.cached)

    def makedirs(self, path: str) -> None:
        self._step("makedirs", path)
        new_folders = []
        while path not in self._names:
            new_folders.append(path)
            path = os.path.dirname(path)
        for folder in reversed(new_folders):
            self._change(_Link(folder, None))

    def rename(self, source: str, target: str) -> None:
        self._step("rename", source)
        self._change(_Link(target, self._inode(source), source))

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        self._inode(path)
        self._change(_Unlink(path))

    def remove_folder(self, path: str) -> None:
        self._step("remove_folder", path)
        if path in self._names and not any(os.path.dirname(name) == path for name in self._names):
            self._pending.pop(path, None)  # what is not durable in it goes with it, or comes back
            self._change(_Unlink(path))

    def sync_dir(self, path: str) -> None:
        self._step("sync_dir", path)
        if path not in self._names:
            raise StorageError("cannot sync folder: no such folder", path=path)
        for change in self._pending.pop(path, []):
            _apply_name(self._durable, change)

    def sync_all(self, path: str) -> None:
        for inode in self._inodes:
            file = SimFile(self, path, inode, False, False)
            file.sync()
            file.close()
        for folder in tuple(self._pending):
            self.sync_dir(folder)

    def epoch(self) -> str:
        return str(self._losses)

    def usage(self, path: str) -> Usage:
        return Usage(self.capacity, max(0, self.capacity - self._used_bytes()))

    def lock(self, path: str) -> _Lock:
        if path in self._locks:
            raise UsageError("another process uses this folder", path=path)
        return _Lock(self._locks, path)

    def lock_file(self, path: str, content: bytes) -> _Lock:
        return self.lock(path)

    def beside(self, name: str) -> _InTurn:
        return _InTurn(self.random)

    def _step(self, operation: str, path: str) -> None:
        if self.enter(operation, path):
            self.stop()

    def _change(self, change: _Link | _Unlink) -> None:
        folder = os.path.dirname(change.path)
        if folder not in self._names:
            raise StorageError("cannot create: no such folder", path=change.path)
        _apply_name(self._names, change)
        self._pending.setdefault(folder, []).append(change)

    def _inode(self, path: str) -> _Inode:
        node = self._names.get(path)
        if node is None:
            raise StorageError("no such file", path=path)
        return node
