"""What a figure depends on besides the program: the processor, the disk's sync, and what others do meanwhile."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tallystick.codec import implementation

RESTED_S = 25.0  # after a load: by then a server that gives memory back has done so
QUIET_CORES = 0.3  # of which others may use so much
_LOOK_S = 0.5
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def anonymous_mb(pid: int) -> float:
    """Resident memory without mapped files; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024 / 1e6


def busy_seconds() -> float:
    """Time that all processors together have worked so far, for whomever; without waiting for disks."""
    user, nice, system, _idle, _wait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) * _TICK_S


async def until_quiet(most_s: float) -> None:
    """Wait until all processes together use little of a core, ``most_s`` at most."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        before = busy_seconds()
        await asyncio.sleep(_LOOK_S)
        if busy_seconds() - before < QUIET_CORES * _LOOK_S:
            return


class Meter:
    """CPU of named processes, and of all others on the machine, over one round."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = [*pids, os.getpid()]
        self._start, self._busy = time.monotonic(), busy_seconds()
        self._cpu = {pid: cpu_seconds(pid) for pid in self._pids}

    def stop(self) -> None:
        self.seconds = time.monotonic() - self._start
        self.cpu = {pid: cpu_seconds(pid) - before for pid, before in self._cpu.items()}
        others = busy_seconds() - self._busy - sum(self.cpu.values())
        self.others_cores = max(0.0, others / self.seconds)


def sync_p50_us(folder: Path, size: int, *, growing: bool, count: int = 60) -> float:
    """The median fdatasync behind a write of ``size`` bytes: at the end of a file, or over what it already has."""
    data, times = os.urandom(size), []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        if not growing:
            os.pwrite(file.fileno(), bytes(size * count), 0)
            os.fsync(file.fileno())
        for number in range(count):
            os.pwrite(file.fileno(), data, number * size)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def describe(folder: Path) -> dict[str, Any]:
    """The machine in a few fields."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    syncs = {
        f"fdatasync_{size // 1024}k_{kind}_p50_us": round(sync_p50_us(folder, size, growing=kind == "growing"))
        for size in (4096, 65536)
        for kind in ("growing", "rewritten")
    }
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "codec": implementation.in_use(),
        **syncs,
    }
