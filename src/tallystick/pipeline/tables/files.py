"""What a task does: the rows that it gets become Parquet files, one a partition of the table; and what they are called.

No reader of the table knows of a file before the driver's commit lists it, and no attempt writes to another one's.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from tallystick.pipeline.tables.file_stats import column_stats

if TYPE_CHECKING:
    import pyarrow as pa

DEAD_LETTER = "_dead_letter"
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
MAX_OPEN_FILES = 64  # of a task; rows of more partitions wait in memory
MAX_BUFFERED_BYTES = 128 * 1024 * 1024  # of all files of a task together
ROW_GROUP_BYTES = 32 * 1024 * 1024
_PIECE_BYTES = 512  # what some rows take beside their bytes, and so much again for each column
SPARK_SCHEMA = "file string"  # what a task yields: a row a file


@dataclass(frozen=True)
class WrittenFile:
    """``path`` is relative to the table's folder; ``stats`` are what Delta keeps of a file."""

    path: str
    partition: Mapping[str, str | None]
    rows: int
    size: int
    dead_letters: int
    stats: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> WrittenFile:
        """Back from the row that a task yielded."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class FilesTask:
    """Given to ``DataFrame.mapInArrow``. ``prefix`` begins the names of files."""

    folder: str
    prefix: str
    partitions: tuple[str, ...]
    has_partitions: bool  # whether files have the columns of the partition, too
    target_file_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        files = _TaskFiles(self)
        try:
            for batch in batches:
                for partition, rows in partitioned(batch, self.partitions):
                    files.add(partition, rows)
            written = files.finish()
        finally:
            files.abort()
        texts = [json.dumps(asdict(each)) for each in written]
        yield pa.RecordBatch.from_pydict({"file": pa.array(texts, pa.string())})


def partitioned(
    batch: pa.RecordBatch, partitions: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yields the rows of each partition, in their order, with its values as texts."""
    import numpy as np
    import pyarrow as pa

    if not partitions or not batch.num_rows:
        yield (), batch
        return
    columns = [batch.column(batch.schema.get_field_index(name)) for name in partitions]
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    ends = np.cumsum(np.bincount(inverse))
    for row, rows in zip(first, np.split(np.argsort(inverse, kind="stable"), ends[:-1]), strict=True):
        values = tuple(_text(column[int(row)].as_py()) for column in columns)
        yield values, batch if len(first) == 1 else batch.take(pa.array(rows))


def _text(value: date | int | str | None) -> str | None:
    return None if value is None else str(value)


class _TaskFiles:
    """The files of one task attempt, a partition each: their rows are in memory while they are few, and few files are
    open. So of rows in any order a partition gets one file, but for what memory does not hold."""

    def __init__(self, task: FilesTask) -> None:
        from pyarrow import fs

        self._task = task
        self._fs, self._root = fs.FileSystem.from_uri(task.folder)
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._buffered = 0  # bytes of all of them
        self._written: list[WrittenFile] = []

    def add(self, partition: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        file = self._open.pop(partition, None) or self._new(partition, rows)
        self._open[partition] = file  # the last one: the first one was not written for the longest time
        before = file.buffered
        file.add(rows)
        self._buffered += file.buffered - before
        if file.size >= self._task.target_file_bytes:
            self._close(partition)
        elif not file.buffered:
            written = [each for each, other in self._open.items() if other.is_begun]
            for each in written[:-MAX_OPEN_FILES]:
                self._close(each)
        if self._buffered > MAX_BUFFERED_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        for partition, file in list(self._open.items()):
            if len(self._open) > MAX_OPEN_FILES:
                self._close(partition)
            else:
                file.flush()
        self._buffered = 0

    def finish(self) -> list[WrittenFile]:
        for partition in list(self._open):
            self._close(partition)
        return self._written

    def abort(self) -> None:
        """Leave what was not finished to the sweep, but for what can be deleted now."""
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.abort()
        self._open.clear()

    def _new(self, partition: tuple[str | None, ...], rows: pa.RecordBatch) -> _OpenFile:
        values = dict(zip(self._task.partitions, partition, strict=True))
        folders = [f"{name}={NULL_FOLDER if value is None else value}" for name, value in values.items()]
        path = "/".join([*folders, f"{self._task.prefix}{secrets.token_hex(8)}.parquet"])
        return _OpenFile(self._fs, self._root, path, values, () if self._task.has_partitions else self._task.partitions)

    def _close(self, partition: tuple[str | None, ...]) -> None:
        file = self._open[partition]
        self._buffered -= file.buffered
        self._written.append(file.close())
        del self._open[partition]


class _OpenFile:
    """One Parquet file, whose rows wait for a row group's worth of them."""

    def __init__(
        self, filesystem: Any, root: str, path: str, partition: Mapping[str, str | None], left_out: tuple[str, ...]
    ) -> None:
        self._fs, self._full_path, self._path, self._partition = filesystem, f"{root}/{path}", path, partition
        self._left_out = left_out
        self._rows: list[pa.RecordBatch] = []
        self._writer: Any = None
        self._metadata: list[Any] = []
        self._row_count = self._dead_letters = 0
        self.size = 0  # about how many bytes it has, as Arrow has them before they are compressed
        self.buffered = 0  # that wait in memory

    @property
    def is_begun(self) -> bool:
        """Whether there is a file by now."""
        return self._writer is not None

    def add(self, rows: pa.RecordBatch) -> None:
        if self._left_out:
            rows = rows.select([name for name in rows.schema.names if name not in self._left_out])
        self._rows.append(rows)
        self._row_count += rows.num_rows
        self.size += rows.nbytes
        self.buffered += rows.nbytes + _PIECE_BYTES * (1 + rows.num_columns)
        if (index := rows.schema.get_field_index(DEAD_LETTER)) >= 0:
            self._dead_letters += rows.num_rows - rows.column(index).null_count
        if self.buffered >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._rows:
            return
        table = pa.Table.from_batches(self._rows)
        if self._writer is None:
            self._fs.create_dir(self._full_path.rpartition("/")[0], recursive=True)
            self._writer = pq.ParquetWriter(
                self._full_path,
                table.schema,
                filesystem=self._fs,
                compression="zstd",
                coerce_timestamps="us",
                metadata_collector=self._metadata,
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows, self.buffered = [], 0

    def close(self) -> WrittenFile:
        self.flush()
        self._writer.close()
        size = self._fs.get_file_info(self._full_path).size
        stats = {"numRecords": self._row_count, **column_stats(self._metadata[0])}
        return WrittenFile(self._path, self._partition, self._row_count, size, self._dead_letters, stats)

    def abort(self) -> None:
        self._rows = []
        if self._writer is not None:
            self._writer.close()
            self._fs.delete_file(self._full_path)
