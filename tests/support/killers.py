"""What looks for a planted bug in a copy of our package: schedules or tests, in a process of their own.

The process is forked from one that has imported everybody else's packages already: that takes longer than most killers.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
FOUND = 3  # what a killer ends with that found something, else 0; 1 is an exception
OTHERS = (
    "asyncio", "ctypes", "email.message", "fastcrc", "google.protobuf.message", "hypothesis", "hypothesis.stateful",
    "hypothesis.internal.conjecture.engine", "msgspec", "pytest", "pytest_asyncio.plugin", "pytest_timeout", "sqlite3",
    "ssl", "structlog", "uuid", "xdist.plugin",
)  # fmt: skip


class Killers:
    """Runs one killer at a time."""

    def __init__(self, *imported: str, folder: Path | None = None) -> None:
        """``imported``: modules of the copy of our package in ``folder``, for killers that look at that alone."""
        command = [sys.executable, "-P", __file__, *([str(folder), *imported] if folder is not None else [])]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def run(self, killer: str, arguments: list[str], folder: Path, seconds: float) -> tuple[int, str]:
        """The exit code of ``schedules`` or ``tests`` (below), and what it printed; the package is in ``folder``.

        The code is below 0 when it was killed, as after so many ``seconds``.
        """
        printed = folder / "printed.txt"
        job = {"killer": killer, "arguments": arguments, "folder": str(folder), "printed": str(printed)}
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps({**job, "environment": dict(os.environ), "seconds": seconds}) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline()), printed.read_text(errors="replace")

    def close(self) -> None:
        self._server.communicate()


def schedules(tier: str, promise: str, *seeds: str) -> int:
    """FOUND if one of the schedules breaks ``promise``, or any if that is ""; the last line that is printed is its
    seed."""
    from tallystick.sim.series import run_many

    run = importlib.import_module(f"tallystick.sim.{tier}").run
    for seed in seeds:
        for outcome in run_many(run, (int(seed),)).failures:
            print(outcome.violation)
            if (outcome.violation or "").startswith(f"{promise}:" if promise else ""):
                print(outcome.seed)
                return FOUND
    return 0


def tests(*words: str) -> int:
    """FOUND if a test fails; 10 more than pytest's exit code if that is neither this nor that all passed."""
    import pytest

    # That hypothesis and the plugins are imported already is why they are not rewritten.
    known = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *known, *words])
    return {pytest.ExitCode.OK: 0, pytest.ExitCode.TESTS_FAILED: FOUND}.get(pytest.ExitCode(code), 10 + code)


def _serve(folder: str = "", *imported: str) -> None:
    for name in OTHERS:
        importlib.import_module(name)
    assert "tallystick" not in sys.modules, "killers would look at this one"
    if folder:
        sys.path.insert(0, folder)
    for name in imported:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        seconds = job.pop("seconds")
        child = os.fork()
        if not child:
            _begin(**job)
        print(_end(child, seconds), flush=True)


def _begin(killer: str, arguments: list[str], folder: str, printed: str, environment: Mapping[str, str]) -> NoReturn:
    code = 1
    try:
        output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(file, number)
        os.environ.update(environment, PYTHONPATH=folder, HYPOTHESIS_PROFILE="killer", PATIENCE_S="8")
        sys.path.insert(0, folder)
        import tallystick.errors

        assert Path(tallystick.errors.__file__).is_relative_to(folder), f"not the copy: {tallystick.errors.__file__}"
        code = schedules(*arguments) if killer == "schedules" else tests(*arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _end(child: int, seconds: float) -> int:
    ends = os.pidfd_open(child)
    try:
        if not select.select([ends], [], [], seconds)[0]:
            signal.pidfd_send_signal(ends, signal.SIGKILL)
    finally:
        os.close(ends)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    _serve(*sys.argv[1:])
