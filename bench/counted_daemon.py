"""Spark's daemon of Python workers, which the kernel tells what its ended workers used.

Spark's own ignores how its children end, so that their CPU is counted for nobody: a bench would lose that of each
worker that was idle for a minute. The setting ``spark.python.daemon.module`` names this one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from types import FrameType
from typing import Any

from pyspark import daemon

_set_handler = signal.signal


def set_handler(number: int, handler: Any) -> Any:
    """As ``signal.signal``; but children whose end is to be ignored are waited for, which counts their CPU."""
    return _set_handler(number, _wait if (number, handler) == (signal.SIGCHLD, signal.SIG_IGN) else handler)


def _wait(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(ChildProcessError):  # there is none left
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _wait_for_all() -> None:
    """Workers end with their daemon, and a moment after it: nobody else would wait for them."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


if __name__ == "__main__":
    atexit.register(_wait_for_all)
    signal.signal = set_handler  # type: ignore[assignment]  # handlers of any kind, as that takes
    daemon.manager()
