"""The threads that Spark's executors read with, in the process of a test."""

from __future__ import annotations

from tallystick.pipeline import worker


def close_workers() -> None:
    """End the threads and connections of this process."""
    while worker._workers:
        worker._workers.popitem()[1].close()
