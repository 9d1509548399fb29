"""Leases of sessions in files of their own, so that no lock of the metadata file keeps anyone from renewing.

::

    owner                   id of the boot ":" UUID: a session of another boot has ended, as all its processes are gone
    <path>-leases/<UUID>    8 bytes: when the lease ends, a little-endian double on the boot clock

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
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallystick.bookkeeper.metadata.store import Owner
from tallystick.errors import MetadataError, UsageError
from tallystick.runtime.os_file import make_private_folders

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

RENEWALS = 3  # in the time of a lease
LEFT_BEHIND_S = 86_400.0  # the file of an owner that was killed goes so long after its end
_END = struct.Struct("<d")


def boot_now() -> float:
    """Returns the seconds since boot, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Lease:
    """A session as its owner knows it."""

    owner: Owner
    seconds: float


class LeaseFiles:
    """See the module."""

    def __init__(self, path: str) -> None:
        self.folder = f"{path}-leases"
        self._own: dict[Owner, int] = {}  # descriptors
        try:
            self._boot = BOOT_ID.read_text().strip()
        except OSError as error:
            raise UsageError("sqlite:// needs Linux: there is no boot id here", path=str(BOOT_ID)) from error

    def new_owner(self) -> Owner:
        return f"{self._boot}:{uuid.uuid4()}"

    def _file_of(self, owner: Owner) -> str:
        return f"{self.folder}/{owner.rpartition(':')[2]}"

    def renew(self, lease: Lease) -> float:
        """Renew a lease for its whole time. Returns its end. Raises MetadataError."""
        end = boot_now() + lease.seconds
        try:
            if lease.owner in self._own and not os.fstat(self._own[lease.owner]).st_nlink:
                self._forget(lease.owner)  # somebody cleaned up
            if lease.owner not in self._own:
                make_private_folders(self.folder)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._own[lease.owner] = os.open(self._file_of(lease.owner), flags, 0o600)
            os.pwrite(self._own[lease.owner], _END.pack(end), 0)
        except OSError as error:
            raise MetadataError(
                f"the lease of a session cannot be written: {error.strerror}", path=self.folder
            ) from error
        return end

    def end_of(self, owner: Owner) -> float:
        """Returns when an owner's lease ends, on the boot clock. Returns 0 when there is none."""
        return _end_in(self._file_of(owner)) if owner.startswith(f"{self._boot}:") else 0.0

    def is_living(self, owner: Owner | None) -> bool:
        """Returns whether nodes of this owner exist; nodes without an owner (None) always do."""
        return owner is None or self.end_of(owner) > boot_now()

    def remove(self, owner: Owner) -> None:
        self._forget(owner)
        with contextlib.suppress(OSError):
            os.unlink(self._file_of(owner))

    def is_left_behind(self, owner: Owner) -> bool:
        """Returns whether the lease ended a day ago, or has no known end: its owner was killed."""
        return self.end_of(owner) < boot_now() - LEFT_BEHIND_S

    def remove_left_behind(self) -> None:
        """Delete the files of owners that were killed."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder):
                if _end_in(f"{self.folder}/{name}") < boot_now() - LEFT_BEHIND_S:
                    os.unlink(f"{self.folder}/{name}")

    def _forget(self, owner: Owner) -> None:
        descriptor = self._own.pop(owner, None)
        if descriptor is not None:
            os.close(descriptor)


def _end_in(path: str) -> float:
    try:
        with open(path, "rb") as file:
            data = file.read(_END.size)
    except OSError:
        return 0.0
    return float(_END.unpack(data)[0]) if len(data) == _END.size else 0.0


class LeaseKeeper:
    """Renews leases on a thread of its own, which a slow disk under the metadata file does not hold up either."""

    def __init__(self, files: LeaseFiles) -> None:
        self._files = files
        self._condition = threading.Condition()
        self._held_leases: dict[Owner, _HeldLease] = {}
        self._thread: threading.Thread | None = None

    def hold(self, lease: Lease, lapsed: Callable[[], None] = lambda: None) -> None:
        """Renew a lease now and from now on, in place of an older one of its owner. Raises MetadataError.

        ``lapsed`` is called on the keeper's thread after a renewal that came too late: the lease had ended meanwhile.
        """
        with self._condition:
            end = self._files.renew(lease)
            self._held_leases[lease.owner] = _HeldLease(lease, lapsed, end)
            self._condition.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tally-leases", daemon=True)
                self._thread.start()

    def drop(self, *owners: Owner) -> None:
        """End leases and delete their files; with the last one the thread ends."""
        with self._condition:
            for owner in owners:
                self._held_leases.pop(owner, None)
                self._files.remove(owner)
            self._condition.notify_all()

    def drop_all(self) -> None:
        """End all leases."""
        with self._condition:
            owners = tuple(self._held_leases)
        self.drop(*owners)

    def _run(self) -> None:
        with self._condition:
            while self._held_leases:
                self._condition.wait(
                    min(held_lease.lease.seconds for held_lease in self._held_leases.values()) / RENEWALS
                )
                for held_lease in self._held_leases.values():
                    with contextlib.suppress(MetadataError):  # tried again long before it ends
                        had_ended = boot_now() >= held_lease.end
                        held_lease.end = self._files.renew(held_lease.lease)
                        if had_ended:
                            held_lease.lapsed()
            self._thread = None


@dataclass
class _HeldLease:
    lease: Lease
    lapsed: Callable[[], None]
    end: float
