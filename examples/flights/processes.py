"""The processes of the run: the cluster, the writers, Spark. Each ends with its context, whatever happens.

They are in sessions of their own: a Ctrl-C in the terminal reaches the story alone, which then ends them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from examples.flights.acks import read_log
from tallystick.admin.dev import running_uri

TALLY = (sys.executable, "-m", "tallystick")
STOP_S = 10.0


class Cluster:
    """The local cluster, driven by the same commands that a user types."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tally(self, *words: str) -> str:
        command = [*TALLY, *words, "--dir", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
        if done.returncode:
            raise SystemExit(f"`tally {' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def running(self, bookies: int) -> Iterator[str]:
        """The metadata URI of a fresh cluster, which is gone again afterwards."""
        try:
            self.tally("dev", "up", "--bookies", str(bookies))
            uri = running_uri(str(self.folder))
            assert uri is not None
            yield uri
        finally:
            self.stop()

    def stop(self) -> None:
        """End the bookies, if there are any. Another Ctrl-C does not keep them from it."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if running_uri(str(self.folder)) is not None:
                self.tally("dev", "down")
        finally:
            signal.signal(signal.SIGINT, before)


class _Process:
    """A program of this example. ``log`` is what an error message names."""

    name = "program"

    def __init__(self, log: Path, module: str, options: Mapping[str, object], stderr: Path | None = None) -> None:
        self.log = log
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with contextlib.ExitStack() as stack:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                stdin=subprocess.PIPE,
                stderr=stack.enter_context(stderr.open("wb")) if stderr else None,
                start_new_session=True,
            )

    def finish(self, said: str = "") -> None:
        """Wait for its end, after a last word to it."""
        self._process.communicate(said.encode())
        if self._process.returncode:
            raise SystemExit(f"the {self.name} failed with exit code {self._process.returncode}; its log: {self.log}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it and all that it has started."""
        if self._process.poll() == 0:
            return
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class WriterProcess(_Process):
    """A writer as a process of its own, so that it can be killed like one. ``log``: what was acknowledged."""

    name = "writer"

    def __init__(self, uri: str, log: Path, first_row: int, rows: int, rate: float) -> None:
        arguments = {"uri": uri, "log": log, "first-row": first_row, "rows": rows, "rate": rate}
        super().__init__(log, "examples.flights.writer", arguments)

    def wait_for(self, done: Callable[[int], bool], tick: Callable[[int], None]) -> None:
        """Until ``done(rows acknowledged)``; ``tick`` is called with that number on the way."""
        while not done(rows := read_log(self.log).rows):
            tick(rows)
            if self._process.poll() is not None and not done(read_log(self.log).rows):
                raise SystemExit(f"the writer ended early, with exit code {self._process.returncode}")
            time.sleep(0.05)
        tick(read_log(self.log).rows)


class IngestProcess(_Process):
    """Spark, which starts at once and waits for ``finish(ledgers)``. ``log``: what it and Java say on stderr."""

    name = "Spark program"

    def __init__(self, uri: str, log: Path, table: Path) -> None:
        super().__init__(log, "examples.flights.ingest", {"uri": uri, "table": table}, stderr=log)
