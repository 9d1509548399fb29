"""A test run that is killed takes along what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.admin.process import ProcessId, ProcessState, identify, send, state_of, wait_dead

PROGRAM = """
import subprocess, sys
from support import reaper
with reaper.watching():
    left = subprocess.Popen(["sleep", "100"], start_new_session=True, stdout=subprocess.DEVNULL)
    print(left.pid, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def run() -> Iterator[tuple[subprocess.Popen[str], ProcessId]]:
    tests = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    assert process.stdin is not None and process.stdout is not None
    left = identify(int(process.stdout.readline()))
    assert left is not None
    with process:
        yield process, left
        process.kill()
    send(left, signal.SIGKILL)


def test_a_killed_run(run: tuple[subprocess.Popen[str], ProcessId]) -> None:
    process, left = run
    assert state_of(left) is ProcessState.ALIVE
    process.kill()
    assert wait_dead(left, 20)


def test_a_run_that_ends(run: tuple[subprocess.Popen[str], ProcessId]) -> None:
    process, left = run
    process.communicate("\n", timeout=20)
    assert state_of(left) is ProcessState.DEAD
