"""What becomes of a batch: skipped if the table has it, else written by the executors and committed by the driver.

The table is read before anything is written, and again with each attempt at the commit, whose compare-and-set decides:
of two drivers that write one batch, or one that was paused and comes back, one commits, and the other finds its number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystick.errors import MetadataConflict, TallyError
from tallystick.pipeline.checkpoint import batch_offsets
from tallystick.pipeline.tables.arrow_types import added_columns, check_partitions
from tallystick.pipeline.tables.files import SPARK_SCHEMA, FilesTask, WrittenFile
from tallystick.pipeline.tables.last_commit import LastCommit, note_commit, require_batch
from tallystick.pipeline.tables.names import FileName
from tallystick.pipeline.tables.record import TableRecord, is_committed
from tallystick.pipeline.tables.rows import BatchRows, arrow_schema
from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.pipeline.tables.sweep import Sweep
from tallystick.pipeline.tables.target import CommitLost, TableState, TableTarget
from tallystick.runtime.events import Events

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COMMIT_TRIES = 20
MANY_PARTITIONS = 1_000  # of one batch, in each of which it makes a small file
RETRY_S = 0.1
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class IngestProgress:
    """What a query has done since it was started here. ``batch``: the last one that is in the table, -1 for none."""

    batch: int = -1
    batches: int = 0
    skipped: int = 0  # batches that the table had already
    rows: int = 0
    dead_letters: int = 0  # rows that were set aside
    files: int = 0
    bytes: int = 0
    version: str = ""  # of the table


class BatchWriter:
    """Writes the batches of one application, as ``foreachBatch`` gives them."""

    def __init__(
        self, target: TableTarget, application: str, checkpoint: str, settings: IngestSettings, events: Events, *,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.progress = IngestProgress()
        self.error: TallyError | None = None  # that ended the query
        self._target, self._application, self._settings, self._events = target, application, settings, events
        self._rows = BatchRows(settings)
        self._sweep = Sweep(target, application, settings.orphan_age_s, events, clock)
        self._checkpoint = checkpoint
        self._one = threading.Lock()  # a stopped query's last batch may still be written when the next one comes

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Raises what ends the query: errors of the caller's, and those that more tries do not mend."""
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        assert query is not None, "Spark says which query it calls"
        with self._one:
            try:
                self._write(batch, TableRecord(query, number, batch_offsets(self._checkpoint, number)))
            except TallyError as error:
                self.error = error
                raise

    def _write(self, batch: DataFrame, written: TableRecord) -> None:
        state = self._loaded()
        if state is not None and self._is_committed(state, written):
            return
        rows = self._rows.shaped(batch, None if state is None else state.schema)
        schema = arrow_schema(rows.schema)
        state = self._prepared(state, schema)
        files = self._files(rows, state, written)
        if not files:
            return
        self._commit(files, schema, written)
        self._keep(written)

    def _loaded(self) -> TableState | None:
        """Read the table. Raises CheckpointLost if it lacks a batch that was committed here: its copy was put back, or
        it was made anew, while the query ran."""
        state = self._target.load(self._application)
        batch = -1 if state is None or state.record is None else state.record.batch
        require_batch(LastCommit(self._target.name, self._application, batch), self.progress.batch)
        return state

    def _prepared(self, state: TableState | None, schema: pa.Schema) -> TableState:
        """The table, made if there was none, and found to take these columns."""
        if state is None:
            self._target.create(schema, self._settings.partitions)
            state = self._target.load(self._application)
            assert state is not None, "a table that was just made"
            self._events.emit("table created", table=self._target.name, columns=len(schema))
        check_partitions(state.partitions, self._settings.partitions, self._target.name)
        added_columns(state.schema, schema, self._target.name)
        return state

    def _files(self, rows: DataFrame, state: TableState, written: TableRecord) -> list[WrittenFile]:
        task = FilesTask(
            state.folder,
            FileName(self._application, written.query, written.batch).prefix,
            self._settings.partitions,
            self._target.has_partitions_in_files,
            self._settings.target_file_bytes,
        )
        return [WrittenFile.parse(row[0]) for row in rows.mapInArrow(task, SPARK_SCHEMA).collect()]

    def _commit(self, files: list[WrittenFile], schema: pa.Schema, written: TableRecord) -> None:
        for attempt in range(COMMIT_TRIES):
            state = self._loaded()
            assert state is not None, "a table that is deleted while it is written"
            if self._is_committed(state, written):
                return
            new = added_columns(state.schema, schema, self._target.name)
            try:
                version = self._target.commit(files, new, self._application, written)
            except CommitLost:
                time.sleep(RETRY_S * attempt)
                continue
            self._committed(files, new, written, version)
            return
        raise MetadataConflict(
            "other writers were faster each time: nothing of the batch is in the table, and it comes again with the "
            "next start",
            table=self._target.name,
            batch=written.batch,
        )

    def _is_committed(self, state: TableState, written: TableRecord) -> bool:
        if not is_committed(state.record, written, self._application, self._target.name):
            return False
        self.progress = replace(self.progress, batch=written.batch, skipped=self.progress.skipped + 1)
        self._events.emit("batch skipped", table=self._target.name, batch=written.batch, reason="the table has it")
        return True

    def _committed(self, files: list[WrittenFile], new: pa.Schema, written: TableRecord, version: str) -> None:
        rows, dead_letters = sum(each.rows for each in files), sum(each.dead_letters for each in files)
        size, before = sum(each.size for each in files), self.progress
        self.progress = IngestProgress(
            written.batch,
            before.batches + 1,
            before.skipped,
            before.rows + rows,
            before.dead_letters + dead_letters,
            before.files + len(files),
            before.bytes + size,
            version,
        )
        if len(new):
            self._events.emit("columns added", table=self._target.name, columns=new.names, batch=written.batch)
        self._events.emit(
            "batch committed",
            table=self._target.name,
            batch=written.batch,
            rows=rows,
            files=len(files),
            version=version,
        )
        partitions = len({tuple(each.partition.items()) for each in files})
        if partitions > MANY_PARTITIONS:
            self._events.emit(
                "batch in many partitions",
                table=self._target.name,
                batch=written.batch,
                partitions=partitions,
                files=len(files),
                rows=rows,
            )
        if dead_letters:
            self._events.emit("rows set aside", table=self._target.name, batch=written.batch, rows=dead_letters)

    def _keep(self, written: TableRecord) -> None:
        """What may fail: the next commit tries it again."""
        try:
            note_commit(self._checkpoint, LastCommit(self._target.name, self._application, written.batch))
            every = self._settings.compact_every
            if every and self._target.can_compact and self.progress.batches % every == 0:
                outcome = self._target.compact(self._settings.target_file_bytes)
                self._events.emit("table compacted", table=self._target.name, **outcome)
            self._sweep.look(written)
        except Exception as error:  # nothing of the batch hangs on it, whatever the library or the disk says
            self._events.emit("table not kept", table=self._target.name, reason=f"{type(error).__name__}: {error}")
