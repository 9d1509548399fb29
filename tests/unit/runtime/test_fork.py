"""What a forked child finds: free locks."""

from __future__ import annotations

import threading

from support.forking import in_child
from tallystick.runtime.fork import ProcessLock


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
