"""Leases of registrations in files of their own, so that no lock of the metadata file keeps anyone from renewing.

::

    <path>-leases/<owner>    8 bytes: when the lease ends, a little-endian double on the boot clock

A client that is stopped inside a write transaction holds SQLite's one write lock until it goes on. A renewal is one
``pwrite`` into the page cache, without lock or sync: expiry is then always the owner's silence, never another's lock.
(A torn write is wrong by less than a second: the upper half of the double has its exponent and the whole seconds.)
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from dataclasses import dataclass

from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import MetadataError

RENEWALS = 3  # in the time of a lease
RETRY_S = 1.0  # after a renewal that failed
LEFT_BEHIND_S = 86_400.0  # the file of an owner that was killed goes so long after its end
_END = struct.Struct("<d")


def boot_now() -> float:
    """Seconds since boot, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Lease:
    """One registration as its owner knows it."""

    bookie: BookieId
    info: BookieInfo
    owner: str
    seconds: float
    read_only: bool = False


class LeaseFiles:
    """See the module."""

    def __init__(self, path: str) -> None:
        self.folder = f"{path}-leases"
        self._own: dict[str, int] = {}  # descriptors by owner

    def renew(self, lease: Lease) -> None:
        """The lease lasts its whole time from now. Raises MetadataError."""
        try:
            if lease.owner in self._own and not os.fstat(self._own[lease.owner]).st_nlink:
                self._forget(lease.owner)  # somebody cleaned up
            if lease.owner not in self._own:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._own[lease.owner] = os.open(f"{self.folder}/{lease.owner}", flags, 0o600)
            os.pwrite(self._own[lease.owner], _END.pack(boot_now() + lease.seconds), 0)
        except OSError as error:
            raise MetadataError(
                f"the lease of a registration cannot be written: {error.strerror}", path=self.folder
            ) from error

    def end_of(self, owner: str) -> float:
        """When an owner's lease ends, on the boot clock; 0 when there is none."""
        try:
            with open(f"{self.folder}/{owner}", "rb") as file:
                data = file.read(_END.size)
        except OSError:
            return 0.0
        return float(_END.unpack(data)[0]) if len(data) == _END.size else 0.0

    def remove(self, owner: str) -> None:
        self._forget(owner)
        with contextlib.suppress(OSError):
            os.unlink(f"{self.folder}/{owner}")

    def remove_left_behind(self) -> None:
        """The files of owners that were killed, a day after their leases ended."""
        with contextlib.suppress(OSError):
            for owner in os.listdir(self.folder):
                if self.end_of(owner) < boot_now() - LEFT_BEHIND_S:
                    os.unlink(f"{self.folder}/{owner}")

    def _forget(self, owner: str) -> None:
        descriptor = self._own.pop(owner, None)
        if descriptor is not None:
            os.close(descriptor)


class LeaseKeeper:
    """Renews leases on a thread of its own, which a slow disk under the metadata file does not hold up either."""

    def __init__(self, files: LeaseFiles) -> None:
        self._files = files
        self._changed = threading.Condition()
        self._held: dict[str, Lease] = {}  # by owner
        self._thread: threading.Thread | None = None

    def hold(self, lease: Lease) -> None:
        """Renew a lease now and from now on, in place of an older one of its owner. Raises MetadataError."""
        with self._changed:
            self._files.renew(lease)
            self._held[lease.owner] = lease
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tally-leases", daemon=True)
                self._thread.start()

    def drop(self, owner: str) -> None:
        """Let a lease go, with its file; with the last one the thread ends."""
        with self._changed:
            self._held.pop(owner, None)
            self._files.remove(owner)
            self._changed.notify_all()

    def _run(self) -> None:
        with self._changed:
            while self._held:
                self._changed.wait(min(lease.seconds for lease in self._held.values()) / RENEWALS)
                for lease in self._held.values():
                    with contextlib.suppress(MetadataError):  # tried again long before it ends
                        self._files.renew(lease)
            self._thread = None
