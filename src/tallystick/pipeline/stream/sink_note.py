"""The streams that a streaming query has written, kept in its checkpoint: each with the names of the application.

A stream says itself how far an application is. But one that was deleted and made anew, or whose metadata was put back
from before the application's first batch, says nothing: who goes on there would never write the batches between.
"""

from __future__ import annotations

from tallystick.pipeline.checkpoint import read_note, write_note

WRITTEN = "tallystick-streams"  # a file of the checkpoint


def has_written(checkpoint: str, stream: str, application: str) -> bool:
    """Whether the query has committed to the stream under this name. Raises CorruptRecord; OSError,
    NotImplementedError or ValueError for a file system that only the JVM knows."""
    return application in _noted(checkpoint).get(stream, [])


def note_written(checkpoint: str, stream: str, application: str) -> None:
    """Note that it has. Raises as ``has_written``."""
    noted = _noted(checkpoint)
    write_note(checkpoint, WRITTEN, {**noted, stream: sorted({*noted.get(stream, []), application})})


def _noted(checkpoint: str) -> dict[str, list[str]]:
    return read_note(checkpoint, WRITTEN, dict[str, list[str]]) or {}
