"""What this machine has of what tallystick needs: a diagnosis for each thing, and what to do where something lacks.

``ok`` is as it should be; ``note`` lacks something that not everybody needs, or is slower than it could be; ``amiss``
keeps a server or client from working.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tallystick.admin import cluster
from tallystick.bookkeeper.metadata.uri import shown
from tallystick.codec import implementation
from tallystick.errors import TallyError, UsageError
from tallystick.runtime.disk import Disk
from tallystick.runtime.extras import require
from tallystick.runtime.java import java_command, java_version
from tallystick.runtime.ports import ReservedPort

SYNCS, SYNCED_BYTES = 21, 4096
FULL = 0.95  # as diskUsageThreshold is by default: a bookie on a fuller disk takes no new entries
FEW_FILES = 4096
SPARK = ("pyspark", "pyarrow", "numpy", "pandas")
LIBRARIES = {
    "metadata in ZooKeeper": ("kazoo",),
    "LZ4, ZSTD and Snappy": ("cramjam",),
    "Spark": SPARK,
    "Delta and Iceberg tables": ("deltalake", "pyiceberg", "sqlalchemy", "fastavro"),
}
# By server: the setting of its port, the port by default, and at which offsets it listens, too.
PORTS = {
    "bookie": ("bookiePort", 3181, ()),
    "name server": ("listenPort", 9876, ()),
    "broker": ("listenPort", 10911, (-2, 1)),
}
IN_MEMORY = {"tmpfs", "ramfs"}
ON_THE_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}


@dataclass(frozen=True)
class Diagnosis:
    """``text`` says what there is; where ``state`` is not ``ok`` also what to do."""

    name: str
    state: Literal["ok", "note", "amiss"]
    text: str


async def diagnose(disk: Disk, folder: str, uri: str | None, limits: tuple[int, int]) -> list[Diagnosis]:
    """Look at everything. ``folder``: where data would lie, absolute. ``uri``: of the metadata; None asks no service.

    ``limits``: how many files a process may have open, soft and hard.
    """
    return [
        Diagnosis("python", "ok", f"{platform.python_version()}, {sys.executable}"),
        codec(),
        *map(libraries, LIBRARIES),
        java(os.environ),
        storage(disk, folder),
        open_files(*limits),
        *(port(server) for server in PORTS),
        await metadata(uri),
    ]


def codec() -> Diagnosis:
    """Look at which codec is in use, and why it is not the compiled one."""
    if implementation.in_use() != "python":
        return Diagnosis("codec", "ok", implementation.in_use())
    try:
        implementation.load({implementation.VARIABLE: "compiled"})
    except UsageError as error:
        why = f"installed without the compiled one ({error.fields['why']}): install a C compiler and Python's headers, "
        return Diagnosis("codec", "note", f"python, {why}then tallystick again; or a wheel of make wheels")
    return Diagnosis("codec", "note", f"python, as {implementation.VARIABLE} says: unset it for the compiled one")


def libraries(purpose: str) -> Diagnosis:
    """Look at whether the libraries of a purpose are installed."""
    try:
        require(purpose, *LIBRARIES[purpose])
    except UsageError as error:
        return Diagnosis(purpose, "note", str(error))
    return Diagnosis(purpose, "ok", ", ".join(LIBRARIES[purpose]))


def java(environment: Mapping[str, str]) -> Diagnosis:
    """Look at which Java Spark would run on. Without Spark nobody needs one."""
    lack: Literal["note", "amiss"] = "amiss" if libraries("Spark").state == "ok" else "note"
    try:
        command = java_command(environment)
        return Diagnosis("java", "ok", f"{java_version(command)}, {command}")
    except UsageError as error:
        return Diagnosis("java", lack, str(error))


def storage(disk: Disk, folder: str) -> Diagnosis:
    """Write to the folder, or to the nearest one above it that is there, and sync; nothing is left of it."""
    try:
        while not disk.exists(folder):
            folder = os.path.dirname(folder)
        median_ms = _sync_ms(disk, folder)
        usage = disk.usage(folder)
    except TallyError as error:
        return Diagnosis("disk", "amiss", f"{error}: give --folder one that this user may write to")
    used = 1 - usage.free / (usage.total - usage.reserved)
    text = f"{folder}: a sync takes {median_ms:.2f} ms, {usage.free / 1e9:,.1f} GB free, {used:.0%} in use"
    kind = _file_system(folder)
    if used > FULL:
        return Diagnosis("disk", "amiss", f"{text}: a bookie takes no new entries above {FULL:.0%}; make room")
    if kind in IN_MEMORY:
        return Diagnosis("disk", "note", f"{text}; it is in memory ({kind}): gone when the machine restarts")
    if kind in ON_THE_NETWORK:
        return Diagnosis("disk", "note", f"{text}; it is on the network ({kind}): SQLite metadata need a local disk")
    return Diagnosis("disk", "ok", text)


def _sync_ms(disk: Disk, folder: str) -> float:
    """Returns the median."""
    path = os.path.join(folder, f".tally-doctor-{os.getpid()}")
    taken_ms = []
    try:
        file = disk.open(path, create=True)
        try:
            for number in range(SYNCS):
                file.write([bytes(SYNCED_BYTES)], number * SYNCED_BYTES)
                began_s = time.perf_counter()
                file.sync()
                taken_ms.append((time.perf_counter() - began_s) * 1000)
        finally:
            file.close()
    finally:
        if disk.exists(path):
            disk.unlink(path)
    return statistics.median(taken_ms)


def _file_system(folder: str) -> str:
    """Returns its type, and an empty text where Linux does not say it."""
    folder, longest, kind = os.path.realpath(folder), "", ""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                _, where, its_kind, *_ = line.split(" ")
                where = where.replace("\\040", " ")
                if len(where) >= len(longest) and os.path.commonpath([where, folder]) == where:
                    longest, kind = where, its_kind
    except (OSError, ValueError):
        return ""
    return kind


def open_files(soft: int, hard: int) -> Diagnosis:
    """Look at the limit of open files and sockets; servers take all that the hard one allows."""
    text = f"{hard:,} for a server ({soft:,} for other programs)"
    if hard < FEW_FILES:
        text += ": files and connections are counted together; raise the limit (LimitNOFILE= of systemd, ulimit -Hn)"
        return Diagnosis("open files", "note", text)
    return Diagnosis("open files", "ok", text)


def port(server: str) -> Diagnosis:
    """Look at whether the ports of a server with default settings are free at 127.0.0.1."""
    setting, number, offsets = PORTS[server]
    name = f"port of a {server}"
    numbers = ", ".join(str(number + offset) for offset in (0, *offsets))
    try:
        ReservedPort("127.0.0.1", *offsets, port=number).close()
    except UsageError as error:
        return Diagnosis(name, "note", f"{error}: it runs already, or set another {setting}")
    return Diagnosis(name, "ok", f"{numbers} free")


async def metadata(uri: str | None) -> Diagnosis:
    """Ask the metadata service for its cluster and bookies."""
    if uri is None:
        text = "no cluster is named, and none for development runs: give --uri, or start one with tally dev up"
        return Diagnosis("metadata", "note", text)
    try:
        async with cluster.metadata(uri) as driver:
            instance, bookies = await driver.instance_id(), await driver.bookies()
    except TallyError as error:
        return Diagnosis("metadata", "amiss", str(error))
    writable = len(bookies.sorted_writable)
    text = f"{shown(uri)}: cluster {instance}, writable bookies: {writable}"
    return Diagnosis("metadata", "ok" if writable else "note", text if writable else f"{text}; see tally bookie list")
