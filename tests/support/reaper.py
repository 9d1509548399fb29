"""Ends what a test run started and left behind, also when the run itself was killed.

Development clusters outlive the process that started them on purpose, so their parent cannot take them along. Every
process of a run has a mark in its environment, which its children inherit; a watcher reads a pipe that only the run
holds open, and at its end kills all that have the mark. Linux only: elsewhere nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

MARK = "PYTEST_RUN_OF_TALLYSTICK"
ROUNDS = 20  # a process may start another while we look


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """Mark what this process starts from now on; at the end, or when this process dies, it is killed."""
    run = str(uuid.uuid4())
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != MARK},
    )
    os.environ[MARK] = run
    try:
        yield
    finally:
        del os.environ[MARK]
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:  # ended, or somebody else's
        return False


def _kill(pid: int, mark: bytes) -> None:
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _has_mark(pid, mark):  # asked again: from here on the id cannot change hands
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def reap(run: str) -> None:
    mark = f"{MARK}={run}".encode()
    for _ in range(ROUNDS):
        found = [int(name) for name in os.listdir("/proc") if name.isdecimal() and _has_mark(int(name), mark)]
        if not found:
            return
        for pid in found:
            _kill(pid, mark)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    reap(sys.argv[1])
