"""The processes of the run: the cluster, writers and senders. Each ends with its context, whatever happens, and what
does not get on is ended with a message that says so.

They are in sessions of their own: a Ctrl-C in the terminal reaches the story alone, which then ends them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from examples.flights.acks import AckLogContent, read_log
from examples.flights.sender import LOST_BROKER
from tallystick.admin.dev_lookup import running_name_server, running_uri

TALLY = (sys.executable, "-m", "tallystick")
STOP_S = 10.0
SEND_S = 30.0  # a send without answer is given up long before
COMMAND_S = 180.0  # a command of `tally`
STALL_S = 180.0  # a program that does nothing for so long hangs


class Patience:
    """Raises SystemExit once what it is told has not changed for ``seconds``. ``what``: what is waited for."""

    def __init__(self, what: str, seconds: float = STALL_S) -> None:
        self._what, self._seconds = what, seconds
        self._last: object = None
        self._since = time.monotonic()

    def tell(self, state: object) -> None:
        """Say how far it is."""
        now = time.monotonic()
        if state != self._last:
            self._last, self._since = state, now
        elif now - self._since > self._seconds:
            raise SystemExit(f"{self._what} did not get on for {self._seconds:.0f} s: it is ended")


class Cluster:
    """The local cluster, driven by the same commands that a user types."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tally(self, *words: str) -> str:
        environment = {**os.environ, "TALLY_DEV_DIR": str(self.folder)}
        try:
            done = subprocess.run(
                [*TALLY, *words],
                env=environment,
                capture_output=True,
                text=True,
                start_new_session=True,
                timeout=COMMAND_S,
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"`tally {' '.join(words)}` did not end in {COMMAND_S:.0f} s") from None
        if done.returncode:
            raise SystemExit(f"`tally {' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def running(self, bookies: int, brokers: str) -> Iterator[tuple[str, str]]:
        """The metadata URI and the name server of a fresh cluster, which is gone again afterwards."""
        try:
            self.tally("dev", "up", "--bookies", str(bookies), "--brokers", brokers)
            uri, name_server = running_uri(str(self.folder)), running_name_server(str(self.folder))
            assert uri is not None and name_server is not None
            yield uri, name_server
        finally:
            self.stop()

    def stop(self) -> None:
        """End its processes, if there are any. Another Ctrl-C does not keep them from it."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if running_uri(str(self.folder)) is not None:
                self.tally("dev", "down")
        finally:
            signal.signal(signal.SIGINT, before)


class Program:
    """A program of this example. ``log`` is what an error message names."""

    name = "program"

    def __init__(self, log: Path, module: str, *words: object, stderr: Path | None = None) -> None:
        self.log = log
        with contextlib.ExitStack() as stack:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(stderr.open("ab")) if stderr else None,
                start_new_session=True,
                text=True,
            )

    def finish(self) -> None:
        """Wait for its end."""
        try:
            self._process.communicate(timeout=STALL_S)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"the {self.name} did not end in {STALL_S:.0f} s; its log: {self.log}") from None
        if self._process.returncode:
            raise SystemExit(f"the {self.name} failed with exit code {self._process.returncode}; its log: {self.log}")

    def kill(self) -> None:
        """Kill it (kill -9), and what it has started."""
        if self._process.poll() is not None:
            raise SystemExit(f"the {self.name} was to be killed, and had ended; its log: {self.log}")
        self._signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it and all that it has started."""
        if self._process.poll() != 0:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class WritingProcess(Program):
    """A writer or sender as a process of its own, so that it can be killed like one. ``log``: what was acknowledged.

    It writes as far as ``allow`` has told it.
    """

    def allow(self, rows: float) -> None:
        """Write the rows before this one, and wait then."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(f"{int(rows)}\n")
            self._process.stdin.flush()

    def wait_for(self, done: Callable[[int], bool], tick: Callable[[int], None]) -> None:
        """Until ``done(rows acknowledged)``; ``tick`` is called with that number on the way."""
        self.wait_for_log(lambda content: done(content.rows), lambda content: tick(content.rows))

    def wait_for_log(self, done: Callable[[AckLogContent], bool], tick: Callable[[AckLogContent], None]) -> None:
        """The same by all that its log has."""
        patience = Patience(f"the {self.name} (its log: {self.log})")
        while not done(content := read_log(self.log)):
            tick(content)
            patience.tell((content.rows, len(content.steps)))
            if self._process.poll() is not None and not done(read_log(self.log)):
                raise SystemExit(f"the {self.name} ended early, with exit code {self._process.returncode}")
            time.sleep(0.05)
        tick(read_log(self.log))


class WriterProcess(WritingProcess):
    """Publishes rows to the stream, once it owns it. ``before``: the log of the one before it."""

    name = "writer"

    def __init__(self, uri: str, owner: str, log: Path, before: Path | None, rows: int, rate: float) -> None:
        after = () if before is None else ("--before", before)
        super().__init__(
            log,
            "examples.flights.writer",
            "--uri",
            uri,
            "--name",
            owner,
            "--log",
            log,
            "--rows",
            rows,
            "--rate",
            rate,
            *after,
        )


class SenderProcess(WritingProcess):
    """Sends rows to a topic."""

    name = "sender"

    def __init__(self, name_server: str, topic: str, log: Path, first_row: int, rows: int, rate: float) -> None:
        super().__init__(
            log,
            "examples.flights.sender",
            "--name-server",
            name_server,
            "--topic",
            topic,
            "--log",
            log,
            "--first-row",
            first_row,
            "--rows",
            rows,
            "--rate",
            rate,
            stderr=log.with_suffix(".err"),
        )

    def wait_until_lost(self) -> None:
        """It ends by itself when its broker is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(SEND_S)
        if self._process.returncode is None:
            raise SystemExit(
                f"the sender did not notice in {SEND_S:.0f} s that its broker is dead; its log: {self.log}"
            )
        if self._process.returncode != LOST_BROKER:
            raise SystemExit(f"the sender ended with exit code {self._process.returncode}; its log: {self.log}")
