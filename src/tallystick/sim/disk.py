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
from collections.abc import Callable, Iterator
from typing import NoReturn

from tallystick.errors import StorageError, UsageError
from tallystick.runtime.disk import Usage
from tallystick.sim.disk_content import DiskImage, Inode, Link, Node, Truncate, Unlink, Write, apply_name, apply_write
from tallystick.sim.disk_file import SimFile

PLENTY = 1 << 40  # bytes of a disk that is never full


class Crashed(BaseException):
    """The process or the machine stopped in the middle of an operation. No code under test catches it."""


class _InTurn:
    """Runs two calls of two threads one after the other; the seed says which is first."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def both(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        for call in (first, second) if self._random.random() < 0.5 else (second, first):
            call()

    def close(self) -> None:
        """Does nothing: there is no thread."""


class _Lock:
    """A lock of a folder or a file. It is held until it is released, or its process is dead."""

    def __init__(self, locks: dict[str, _Lock], path: str) -> None:
        self._locks, self._path = locks, path
        locks[path] = self

    def release(self) -> None:
        if self._locks.get(self._path) is self:
            del self._locks[self._path]


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
        self._names: dict[str, Node] = {"/": None}
        self._durable: dict[str, Node] = {"/": None}
        self._pending: dict[str, list[Link | Unlink]] = {}
        self._inodes: list[Inode] = []
        self._locks: dict[str, _Lock] = {}
        self.open_files: set[SimFile] = set()

    # What happens to it.

    def kill(self) -> None:
        """Let the process die; all that it wrote is still in the page cache."""
        self.life += 1
        self._is_stopped, self.crash_at = False, None
        self._locks.clear()
        self.open_files.clear()
        for inode in self._inodes:
            inode.cached = bytearray(inode.cached)  # what it mapped is its own no more

    def power_loss(self) -> None:
        """Let the machine die: what was not synced is lost, kept or torn."""
        self.kill()
        self._losses += 1
        for changes in self._pending.values():
            for change in changes:
                if self.random.random() < 0.5:
                    apply_name(self._durable, change)
        self._pending.clear()
        for inode in self._inodes:
            for write in self._survivors(inode.pending):
                apply_write(inode.durable, write)
            inode.pending.clear()
            inode.cached = bytearray(inode.durable)
        self._durable = {path: node for path, node in self._durable.items() if self._reachable(path)}
        self._names = dict(self._durable)
        self._inodes = [node for node in self._names.values() if node is not None]

    def _survivors(self, pending: list[Write | Truncate]) -> list[Write | Truncate]:
        survivors: list[Write | Truncate] = []
        for change in pending:
            fate = self.random.randrange(3)
            if fate == 1:
                survivors.append(change)
            elif fate == 2 and isinstance(change, Write):
                first, last = sorted(self.random.randint(0, len(change.data)) for _ in range(2))
                if self.random.random() < 0.5:
                    first = 0
                survivors.append(Write(change.offset + first, change.data[first:last]))
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

    def medium(self) -> SimDisk:
        """Return another disk: what is on the medium of this one, and nothing that was not synced."""
        nodes: dict[str, Node] = {}
        for path, node in self._durable.items():
            nodes[path] = node and Inode(bytearray(node.durable), bytearray(node.durable))
        disk = SimDisk(random.Random(0))
        disk.become(DiskImage(dict(nodes), nodes))
        return disk

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
        """Let a judge read: without faults and crashes, and its operations do not count."""
        before = self.operations, self.crash_at, self.fault
        self.crash_at = self.fault = None
        try:
            yield
        finally:
            self.operations, self.crash_at, self.fault = before

    def stop(self) -> NoReturn:
        """Crash now: ``on_stop`` takes the machine down, or nothing works until ``kill`` or ``power_loss``."""
        if self.on_stop is not None:
            self.on_stop()  # who looks at what dies can still read
        else:
            self._is_stopped = True
        raise Crashed(f"operation {self.operations}")

    def enter(self, operation: str, path: str, life: int | None = None) -> bool:
        """Count an operation. Returns whether the crash interrupts it."""
        if self._is_stopped or (life is not None and life != self.life):
            raise Crashed(f"{operation} after a crash")
        self.operations += 1
        if self.fault is not None and (error := self.fault(operation, path)) is not None:
            raise error
        return self.operations == self.crash_at

    def room_for(self, inode: Inode, end: int) -> int:
        """Returns by how many bytes a file that reaches to ``end`` is too long for the disk."""
        growth = max(0, end - len(inode.cached))
        return max(0, growth - max(0, self.capacity - self._used_bytes()))

    def _used_bytes(self) -> int:
        return sum(len(node.cached) for node in self._names.values() if node is not None)

    # The interface of ``runtime.disk.Disk``.

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> SimFile:
        self._step("open", path)
        if path not in self._names and create:
            self._inodes.append(Inode())
            self._change(Link(path, self._inodes[-1]))
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
            self._change(Link(folder, None))

    def rename(self, source: str, target: str) -> None:
        self._step("rename", source)
        self._change(Link(target, self._inode(source), source))

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        self._inode(path)
        self._change(Unlink(path))

    def remove_folder(self, path: str) -> None:
        self._step("remove_folder", path)
        if path in self._names and not any(os.path.dirname(name) == path for name in self._names):
            self._pending.pop(path, None)  # what is not durable in it goes with it, or comes back
            self._change(Unlink(path))

    def sync_dir(self, path: str) -> None:
        self._step("sync_dir", path)
        if path not in self._names:
            raise StorageError("cannot sync folder: no such folder", path=path)
        for change in self._pending.pop(path, []):
            apply_name(self._durable, change)

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

    def _change(self, change: Link | Unlink) -> None:
        folder = os.path.dirname(change.path)
        if folder not in self._names:
            raise StorageError("cannot create: no such folder", path=change.path)
        apply_name(self._names, change)
        self._pending.setdefault(folder, []).append(change)

    def _inode(self, path: str) -> Inode:
        node = self._names.get(path)
        if node is None:
            raise StorageError("no such file", path=path)
        return node
