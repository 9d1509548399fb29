"""Two calls at the same time: both are over when the caller goes on, whatever became of either."""

from __future__ import annotations

import threading

import pytest

from tallystick.errors import StorageError
from tallystick.runtime.beside import ThreadBeside


@pytest.fixture
def beside() -> ThreadBeside:
    return ThreadBeside("test")


def test_both_run_at_the_same_time(beside: ThreadBeside) -> None:
    """Each waits for the other: one after the other they would never end."""
    meeting = threading.Barrier(2, timeout=10)
    threads: list[int] = []

    def call() -> None:
        meeting.wait()
        threads.append(threading.get_ident())

    for _ in range(3):
        beside.both(call, call)
    assert len(threads) == 6
    assert set(threads[:2]) == set(threads[2:4]) == set(threads[4:])
    beside.close()


def test_an_error_of_one_is_raised_when_the_other_is_over(beside: ThreadBeside) -> None:
    done: list[str] = []

    def fail() -> None:
        raise StorageError("no")

    with pytest.raises(StorageError, match="no"):
        beside.both(fail, lambda: done.append("second"))
    with pytest.raises(StorageError, match="no"):
        beside.both(lambda: done.append("first"), fail)
    beside.both(lambda: done.append("after"), lambda: None)
    assert done == ["second", "first", "after"]
    beside.close()


def test_it_lets_go_of_its_thread_and_takes_another(beside: ThreadBeside) -> None:
    before = threading.active_count()
    beside.close()
    beside.both(lambda: None, lambda: None)
    assert threading.active_count() == before + 1
    beside.close()
    assert threading.active_count() == before
    beside.both(lambda: None, lambda: None)
    beside.close()
