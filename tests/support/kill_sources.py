"""What the queries of the kill matrix copy: a stream, with its owner in this process or in another, or a topic."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.moments_driver import Job
from support.topics import send
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.rocketmq.wire.record import Message

MORE = 10  # rows that come behind the first ones
SETTINGS = StreamSettings(max_entries_per_ledger=40)
OWNER = """
import sys
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.errors import TallyError
with sync.connect(sys.argv[1]) as bk:
    stream = bk.open_stream(sys.argv[2], settings=StreamSettings(max_entries_per_ledger=40))
    for number in range(int(sys.argv[3])):
        stream.append(b"%05d" % number + b"x" * int(sys.argv[4]))
    print("stored", flush=True)
    sys.stdin.readline()
    try:
        stream.append(b"late")
    except TallyError as error:
        print(type(error).__name__, flush=True)
"""


@dataclass
class Source:
    """``count`` rows of ``width`` bytes behind their numbers; ``append`` adds those with the numbers that it is given.

    ``owner`` is the process that wrote them, if it is a process of its own.
    """

    count: int
    append: Callable[[range], None]
    owner: subprocess.Popen[str] | None = None

    def grow(self) -> None:
        self.append(range(self.count, self.count + MORE))
        self.count += MORE

    def kill_owner(self) -> None:
        assert self.owner is not None
        self.owner.kill()

    def pause_owner(self) -> None:
        assert self.owner is not None
        os.kill(self.owner.pid, signal.SIGSTOP)

    def wake_owner(self) -> str:
        """It goes on with what it was about to append; the name of the error that it gets."""
        assert self.owner is not None and self.owner.stdin is not None and self.owner.stdout is not None
        os.kill(self.owner.pid, signal.SIGCONT)
        self.owner.stdin.write("\n")
        self.owner.stdin.flush()
        return self.owner.stdout.readline().strip()


@contextlib.contextmanager
def topic(job: Job, count: int, width: int) -> Iterator[Source]:
    """It is there, and empty."""
    with sync.topics(job.name_server) as mq:

        def append(numbers: range) -> None:
            for start in range(numbers.start, numbers.stop, 10):
                some = range(start, min(start + 10, numbers.stop))
                send(mq, job.source, [Message(job.source, _row(number, width)) for number in some])

        append(range(count))
        yield Source(count, append)


@contextlib.contextmanager
def owned_stream(bk: sync.BookKeeper, job: Job, count: int, width: int) -> Iterator[Source]:
    """Its owner is another process, and who appends takes it over."""
    command = [sys.executable, "-c", OWNER, job.uri, job.source, str(count), str(width)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as owner:
        try:
            assert owner.stdout is not None and owner.stdout.readline() == "stored\n"
            yield Source(count, lambda numbers: _append(bk, job, numbers, width), owner)
        finally:
            owner.kill()


@contextlib.contextmanager
def free_stream(bk: sync.BookKeeper, job: Job, count: int, width: int) -> Iterator[Source]:
    """It has no owner but while it grows."""
    _append(bk, job, range(count), width)
    yield Source(count, lambda numbers: _append(bk, job, numbers, width))


@contextlib.contextmanager
def stream(bk: sync.BookKeeper, job: Job, count: int, width: int) -> Iterator[Source]:
    """It is written by this process."""
    with bk.open_stream(job.source, settings=SETTINGS) as opened:

        def append(numbers: range) -> None:
            for number in numbers:
                opened.append(_row(number, width))

        append(range(count))
        yield Source(count, append)


def _row(number: int, width: int) -> bytes:
    return b"%05d" % number + b"x" * width


def _append(bk: sync.BookKeeper, job: Job, numbers: range, width: int) -> None:
    with bk.open_stream(job.source, settings=SETTINGS, takeover=True) as opened:
        for number in numbers:
            opened.append(_row(number, width))
