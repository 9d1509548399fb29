"""Who is locked out tries again after a pause: the thread of sqlite run by hand, without a real clock."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from tallystick.bookkeeper.metadata import sqlite_thread
from tallystick.bookkeeper.metadata.sqlite_calls import Call
from tallystick.bookkeeper.metadata.sqlite_thread import SqliteThread
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree
from tallystick.errors import MetadataUnavailable


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata.db")


class Turns:
    """Stands for the time and the queue of a thread that a test runs itself: nothing is waited for, the time is noted.

    After each wait comes the next of the ``calls``.
    """

    def __init__(self, *calls: Callable[[], object]) -> None:
        self.pauses_s: list[float] = []
        self._now, self._calls = 1000.0, list(calls)
        self._came: list[Call] = []

    def monotonic(self) -> float:
        return self._now

    def put(self, call: Call) -> None:
        self._came.append(call)

    def get_nowait(self) -> Call:
        if not self._came:
            raise queue.Empty
        return self._came.pop(0)

    def get(self, timeout: float | None) -> Call:
        if not self._came and timeout is not None:
            self.pauses_s.append(round(timeout, 6))
            self._now += timeout
            if self._calls:
                self._calls.pop(0)()
        return self.get_nowait()


def run_by_hand(path: str, turns: Turns, monkeypatch: pytest.MonkeyPatch, *calls: Call) -> None:
    """A thread's work from its first call to its end, in this thread."""
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda thread: None)
        patched.setattr(time, "monotonic", turns.monotonic)
        thread = SqliteThread(path)
        thread._queue = cast("queue.SimpleQueue[Call]", turns)
        for call in (*calls, Call(lambda: None, False, 0.0, ends=True)):
            turns.put(call)
        thread._run()


class Writer:
    """Another connection, which holds the write lock when it is told to."""

    def __init__(self, path: str) -> None:
        self._tree, self._writing = SqliteTree(path), ExitStack()
        self._tree.make()

    def lock(self) -> None:
        self._writing.enter_context(self._tree.transaction())

    def unlock(self) -> None:
        self._writing.close()

    def close(self) -> None:
        self.unlock()
        self._tree.close()


@pytest.fixture
def writer(path: str) -> Iterator[Writer]:
    made = Writer(path)
    yield made
    made.close()


def test_who_is_locked_out_tries_again_after_pauses_that_grow(
    path: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    writer.lock()
    turns = Turns(*[lambda: None] * 7, writer.unlock)
    run_by_hand(path, turns, monkeypatch, Call(lambda: done.append("changed"), True, 1010.0))
    assert turns.pauses_s == [0.001, 0.002, 0.004, 0.008, 0.01, 0.01, 0.01, 0.01]
    assert done == ["changed"]


def test_a_read_that_is_locked_out_tries_again_after_a_pause(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [MetadataUnavailable("locked", path=path), MetadataUnavailable("locked", path=path), None]
    turns = Turns()

    def read() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    run_by_hand(path, turns, monkeypatch, Call(read, False, 1010.0))
    assert (turns.pauses_s, outcomes) == ([0.001, 0.001], [])


def test_between_two_commits_other_processes_get_at_the_lock(
    path: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_thread, "MAX_TOGETHER", 2)
    done: list[int] = []
    writer.lock()  # so that more changes wait than one commit takes
    turns = Turns(lambda: None, lambda: None, writer.unlock, writer.lock, writer.unlock)
    changes = [Call(partial(done.append, one), True, 1010.0) for one in range(5)]
    run_by_hand(path, turns, monkeypatch, *changes)
    assert done == [0, 1, 2, 3, 4]
    for_the_lock, between, again, last = [0.001, 0.002, 0.004], 0.001, 0.001, 0.001
    assert turns.pauses_s == [*for_the_lock, between, again, last]
