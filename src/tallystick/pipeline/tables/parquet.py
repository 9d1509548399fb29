"""Folders of Parquet, written by Spark's own sink of files: its log ``_spark_metadata`` says which files count.

Spark takes a batch for written whose number that log has, whatever query it is of: one that lost its checkpoint begins
at 0 again, and would lose rows without a word until it is past the log's end. So the folder has a record of its own, of
whose query it is, and another one is refused before it is started.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tallystick.errors import CorruptRecord, UsageError
from tallystick.pipeline.checkpoint import folder_uri, last_batch, last_finished
from tallystick.pipeline.tables.last_commit import LastCommit, require_batch
from tallystick.pipeline.tables.record import TableRecord, is_committed, require_same_query

RECORD = "_tallystick.json"  # readers of Parquet pass over what begins with an underscore
_LOG = "_spark_metadata"


@dataclass(frozen=True)
class _FolderRecord:
    """``query``: None while it has not said its id."""

    application: str
    checkpoint: str
    query: str | None


class ParquetFolder:
    """The folder of one query."""

    def __init__(self, place: str) -> None:
        from pyarrow import fs

        self.name, self.place = f"parquet:{place}", place
        self._fs, self._root = fs.FileSystem.from_uri(folder_uri(place))

    def require(self, application: str, checkpoint: str, query: str | None) -> None:
        """Raises CheckpointLost, or UsageError, for a folder that others have written. ``query``: the checkpoint's."""
        stored, logged = self._record(), self._logged()
        if stored is None:
            if logged:
                raise UsageError("another query of Spark writes this folder: give one of its own", table=self.name)
        elif stored.application != application:
            raise UsageError(
                f"application {stored.application} writes this folder, and Spark's files have one writer: give one of "
                "its own",
                table=self.name,
            )
        elif logged:
            # A driver that died right behind the start has not said which query that was.
            first = query if stored.query is None and stored.checkpoint == folder_uri(checkpoint) else stored.query
            record = TableRecord(first or "that began there", max(logged), 0)
            require_same_query(record, query, application, self.name)
            is_committed(record, TableRecord(record.query, last_batch(checkpoint), 0), application, self.name)
        require_batch(LastCommit(self.name, application, max(logged, default=-1)), last_finished(checkpoint))

    def claim(self, application: str, checkpoint: str, query: str | None) -> None:
        """Write whose the folder is: before the query is started, and when it has an id."""
        self._fs.create_dir(self._root, recursive=True)
        record = _FolderRecord(application, folder_uri(checkpoint), query)
        with self._fs.open_output_stream(f"{self._root}/{RECORD}.new") as file:
            file.write(json.dumps(asdict(record)).encode())
        self._fs.move(f"{self._root}/{RECORD}.new", f"{self._root}/{RECORD}")

    def _record(self) -> _FolderRecord | None:
        from pyarrow import fs

        path = f"{self._root}/{RECORD}"
        if self._fs.get_file_info(path).type != fs.FileType.File:
            return None
        with self._fs.open_input_file(path) as file:
            text = file.read()
        try:
            return _FolderRecord(**json.loads(text))
        except (ValueError, TypeError, RecursionError):
            raise CorruptRecord(f"{RECORD} is none of ours", table=self.name) from None

    def _logged(self) -> list[int]:
        """The batches that Spark's log names."""
        from pyarrow import fs

        infos = self._fs.get_file_info(fs.FileSelector(f"{self._root}/{_LOG}", allow_not_found=True))
        names = [each.base_name.removesuffix(".compact") for each in infos]
        return [int(name) for name in names if name.isdecimal()]
