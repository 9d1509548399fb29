"""Open files of a store within a bound: a file opens when it is used, and the one unused for longest is closed.

A broker has a file for each queue and 1 GiB of log, many more than a process may have open. What was written through a
handle that is closed since is made durable by a sync through the next one: both are the same pages of the kernel.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Protocol

from tallystick.runtime.disk import Buffer, Disk, File

LEAST = 4  # the file written, the next one, one that is synced, one that is read


class ViewOwner(Protocol):
    """An object that keeps a view of a file; the view becomes None when the bound needs its place."""

    view: memoryview | None


class Handles:
    """Files and views of one store, at most ``limit`` open together. All methods may be called on any thread.

    A file in use is not closed, so that a thread more than ``limit`` at work goes above it. A view that is held
    elsewhere stays good, and its handle open, until it is let go.
    """

    def __init__(self, disk: Disk, limit: int) -> None:
        self._disk, self._limit = disk, max(LEAST, limit)
        self._lock = threading.Lock()
        self._open: OrderedDict[CachedFile, None] = OrderedDict()  # the one unused for longest first
        self._views: deque[ViewOwner] = deque()

    @property
    def count(self) -> int:
        """The number of open files and views."""
        return len(self._open) + len(self._views)

    def open(self, path: str, *, create: bool = False) -> CachedFile:
        """Returns a file that opens at its first use, or at once with ``create``, which makes it if it is missing."""
        file = CachedFile(self, path)
        if create:
            self.acquire(file, create=True)
            self.release(file)
        return file

    def acquire(self, cached: CachedFile, *, create: bool = False) -> File:
        """Its open file, until ``release``. Raises StorageError."""
        with self._lock:
            file = cached.file
            if file is None:
                if self.count >= self._limit:
                    self._make_room()
                file = cached.file = self._disk.open(cached.path, create=create)
                self._open[cached] = None
            else:
                self._open.move_to_end(cached)
            cached.users += 1
        return file

    def release(self, cached: CachedFile) -> None:
        with self._lock:
            cached.users -= 1
            unwanted = cached.closing and not cached.users
        if unwanted:
            self.close(cached)

    def map(self, owner: ViewOwner, cached: CachedFile) -> memoryview:
        """Map the file; the view is ``owner.view`` until the bound takes it away."""
        file = self.acquire(cached)
        try:
            view = file.map()
        finally:
            self.release(cached)
        with self._lock:
            if self.count >= self._limit:
                self._make_room()
            self._views.append(owner)
            owner.view = view
        return view

    def unmap(self, owner: ViewOwner) -> None:
        with self._lock:
            owner.view = None
            if owner in self._views:
                self._views.remove(owner)

    def close(self, cached: CachedFile) -> None:
        """Close it, at the end of the use that it is in; a later use opens it again."""
        with self._lock:
            cached.closing = cached.users > 0
            if cached.closing:
                return
            file, cached.file = cached.file, None
            self._open.pop(cached, None)
        if file is not None:
            file.close()

    def _make_room(self) -> None:
        while self.count >= self._limit and len(self._views) > self._limit // 2:
            self._views.popleft().view = None
        if self.count < self._limit:
            return
        for idle in self._open:
            if not idle.users:
                del self._open[idle]
                file, idle.file = idle.file, None
                if file is not None:
                    file.close()
                return


class CachedFile:
    """A ``runtime.disk.File`` that is open only while the bound of its ``Handles`` allows it."""

    __slots__ = ("_handles", "closing", "file", "path", "users")

    def __init__(self, handles: Handles, path: str) -> None:
        self._handles, self.path = handles, path
        self.file: File | None = None  # of Handles: with its lock held
        self.users = 0
        self.closing = False

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        file = self._handles.acquire(self)
        try:
            return file.write(buffers, offset)
        finally:
            self._handles.release(self)

    def read(self, size: int, offset: int) -> bytes:
        file = self._handles.acquire(self)
        try:
            return file.read(size, offset)
        finally:
            self._handles.release(self)

    def sync(self) -> None:
        file = self._handles.acquire(self)
        try:
            file.sync()
        finally:
            self._handles.release(self)

    def size(self) -> int:
        file = self._handles.acquire(self)
        try:
            return file.size()
        finally:
            self._handles.release(self)

    def truncate(self, size: int) -> None:
        file = self._handles.acquire(self)
        try:
            file.truncate(size)
        finally:
            self._handles.release(self)

    def allocate(self, size: int) -> None:
        file = self._handles.acquire(self)
        try:
            file.allocate(size)
        finally:
            self._handles.release(self)

    def close(self) -> None:
        self._handles.close(self)
