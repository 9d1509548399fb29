"""Deletes the files of dead attempts: tasks that Spark ran twice, drivers that died before their commit.

A file goes when it is ours by its name, the application has gone past its batch, no version of the table lists it or
has listed it, it is old, and it was so at an earlier look, too.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.pipeline.tables.names import FileName
from tallystick.pipeline.tables.record import TableRecord
from tallystick.pipeline.tables.target import TableTarget
from tallystick.runtime.events import Events

LOOK_EVERY_S = 600.0  # a look lists all files of the table


class Sweep:
    """Looks now and then, with a commit. ``clock``: in seconds since 1970, as files have their times."""

    def __init__(
        self, target: TableTarget, application: str, age_s: float, events: Events, clock: Callable[[], float]
    ) -> None:
        self._target, self._application, self._age_s = target, application, age_s
        self._events, self._clock = events, clock
        self._looked_at: float | None = None
        self._suspects: frozenset[str] = frozenset()

    def look(self, record: TableRecord) -> None:
        """Look again, if it is time. ``record`` was just committed. Raises what file systems raise."""
        now = self._clock()
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        state = self._target.load(self._application)
        if state is None or state.record is None:
            return
        from pyarrow import fs

        filesystem, root = fs.FileSystem.from_uri(state.folder)
        selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
        old = {
            each.path: each
            for each in filesystem.get_file_info(selector)
            if each.type == fs.FileType.File
            and now - each.mtime_ns / 1e9 >= self._age_s
            and (name := FileName.parse(each.base_name)) is not None
            and name.is_over(self._application, state.record)
        }
        listed = self._target.listed({each.base_name: each.mtime_ns / 1e9 for each in old.values()}) if old else set()
        suspects = frozenset(path for path, each in old.items() if each.base_name not in listed)
        deleted = sorted(suspects & self._suspects)
        for path in deleted:
            filesystem.delete_file(path)
        self._suspects = suspects.difference(deleted)
        if deleted:
            self._events.emit("orphan files deleted", table=self._target.name, files=len(deleted))
