"""Processes of this machine that outlive the command that started them.

A process id alone names nothing for long: the kernel gives it to another process later. A process is therefore its id
*and* its start time (``/proc/PID/stat``, field 22, in ticks since the machine started). A signal goes through a pidfd,
which is opened before the start time is compared: between the comparison and the signal the id cannot change hands.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass


class ProcessState(enum.Enum):
    ALIVE = "alive"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(frozen=True)
class ProcessId:
    """One process, for good."""

    pid: int
    start_time: int


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Field 2 is the program's name in brackets and may hold spaces and brackets: count from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[19])


def identify(pid: int) -> ProcessId | None:
    """The process that has this id now."""
    stat = _stat(pid)
    return ProcessId(pid, stat[1]) if stat else None


def state_of(process: ProcessId) -> ProcessState:
    """A zombie, and another process that inherited the id, count as dead."""
    stat = _stat(process.pid)
    if stat is None or stat[1] != process.start_time or stat[0] in "ZX":
        return ProcessState.DEAD
    return ProcessState.PAUSED if stat[0] in "Tt" else ProcessState.ALIVE


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal this process and no other; False when it is dead."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if state_of(process) is ProcessState.DEAD:
            return False
        signal.pidfd_send_signal(pidfd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)


def wait_dead(process: ProcessId, timeout_s: float) -> bool:
    """Wait until it has ended, whoever its parent is; False when it still runs."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if state_of(process) is not ProcessState.DEAD:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)  # readable once the process has ended
            if not poll.poll(timeout_s * 1000):
                return False
    finally:
        os.close(pidfd)
    with contextlib.suppress(ChildProcessError):  # a child of ours is a zombie until its parent has asked for it
        os.waitpid(process.pid, os.WNOHANG)
    return True


def spawn(arguments: Sequence[str], *, log: str) -> ProcessId:
    """Start ``tally`` with these arguments, detached from the terminal, its output appended to ``log``."""
    pid = os.posix_spawn(
        sys.executable,
        # -P: a file in the working folder must not shadow a module.
        [sys.executable, "-P", "-m", "tallystick", *arguments],
        {**os.environ, "PYTHONUNBUFFERED": "1"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = identify(pid)
    assert process is not None  # a child that nobody has waited for is at least a zombie
    return process
