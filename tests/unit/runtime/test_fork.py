"""What a forked child finds: free locks, and a library that no other thread was in."""

from __future__ import annotations

import os
import threading

import pytest

from support.forking import in_child
from tallystick.errors import UsageError
from tallystick.runtime import fork
from tallystick.runtime.fork import ForkGate, ProcessLock


def test_a_lock_that_another_thread_holds_is_free_in_the_child() -> None:
    lock, held, done = ProcessLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    def child() -> None:
        with lock, lock:
            pass

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(child) == 0
    finally:
        done.set()
        thread.join()


def test_a_fork_waits_until_nobody_is_inside_the_gate() -> None:
    inside, forking, order = threading.Event(), threading.Event(), []
    gate = ForkGate(lambda: order.append("prepared"))

    def hold() -> None:
        with gate:
            inside.set()
            forking.wait()
            order.append("left")

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    os.register_at_fork(before=forking.set)  # runs before the gate's own, which was registered earlier

    def child() -> None:
        assert order == ["left", "prepared"]
        with gate:
            pass

    assert in_child(child) == 0
    thread.join()
    with gate:
        pass


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "FORK_WAIT_S", 0.01)
    prepared: list[int] = []
    gate = ForkGate(lambda: prepared.append(1))
    with gate:
        gate.before()
    assert prepared == []
    entered = threading.Event()

    def enter() -> None:
        with gate:
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.is_set(), "nobody enters while a fork is under way"
    gate.in_parent()
    thread.join()
    assert entered.is_set()


def test_a_child_forked_while_a_call_hung_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "FORK_WAIT_S", 0.01)
    gate = ForkGate(lambda: None)

    def child() -> None:
        with pytest.raises(UsageError, match="forked while"), gate:
            pass

    with gate:
        assert in_child(child) == 0
    with gate:
        pass
    monkeypatch.undo()

    def later_child() -> None:
        with gate:
            pass

    assert in_child(later_child) == 0
