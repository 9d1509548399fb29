import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import running
from tallystick.admin.process import ProcessId, ProcessState, identify, send, spawn, state_of, wait_dead


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield child
    child.kill()
    child.wait()


def test_a_process_is_its_id_and_its_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    process = running(sleeper.pid)
    assert process.pid == sleeper.pid
    assert state_of(process) is ProcessState.ALIVE


def test_a_stranger_with_the_same_id_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    stranger = ProcessId(sleeper.pid, running(sleeper.pid).start_time + 1)
    assert state_of(stranger) is ProcessState.DEAD
    assert not send(stranger, signal.SIGKILL)
    assert wait_dead(stranger, 0)
    assert sleeper.poll() is None


def test_paused_and_resumed(sleeper: subprocess.Popen[bytes]) -> None:
    process = running(sleeper.pid)
    for number, wanted in ((signal.SIGSTOP, ProcessState.PAUSED), (signal.SIGCONT, ProcessState.ALIVE)):
        assert send(process, number)
        while state_of(process) is not wanted:
            os.sched_yield()


def test_an_ended_child_that_nobody_waited_for_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    process = running(sleeper.pid)
    assert not wait_dead(process, 0)
    assert send(process, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert state_of(process) is ProcessState.DEAD
    assert not send(process, signal.SIGKILL)


def test_a_vanished_process_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    process = running(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert identify(process.pid) is None
    assert state_of(process) is ProcessState.DEAD
    assert not send(process, signal.SIGCONT)
    assert wait_dead(process, 0)


def test_names_with_brackets_do_not_confuse(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "60"])
    try:
        process = running(child.pid)
        assert process.start_time > 0
        assert state_of(process) is not ProcessState.PAUSED
    finally:
        child.kill()
        child.wait()


def test_spawn_runs_tally_with_its_output_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    process = spawn(["--version"], log=str(log))
    assert wait_dead(process, 30)
    assert log.read_text().startswith("before\ntallystick ")
    assert os.getsid(0) != process.pid
