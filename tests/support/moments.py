"""Moments of a Spark query at which a test stops it and does something to it.

Data sources that are like ``tally-stream`` and ``tally-topic``, and whose planner, tasks and commits wait at the moment
that the test wants, each moment once, until the test says how to go on. Both sides meet in a folder::

    FOLDER/wanted-MOMENT      the test: the first who comes to this moment takes it (a rename, so it is one of all)
    FOLDER/reached-MOMENT     the query: it waits here; the file has the pids of the process and of its JVM
    FOLDER/go-MOMENT          the test: go on; fail, if the file says so

A moment is ``NAME.BATCH``. A batch's planner comes to ``plans``, its tasks to ``begins``, ``writes`` (behind the first
rows) and ``wrote`` (only the tasks of its last partition), and its commit to ``commits``, ``splices`` (before each
compare-and-set of the list), ``spliced`` (behind it) and ``committed``.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tallystick.bookkeeper.stream.splice.commit_core import Batch
from tallystick.bookkeeper.stream.splice.sink import StreamSink
from tallystick.pipeline.offsets import Offset
from tallystick.pipeline.source_options import options_of_read
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.sink import StreamFollowingWriter
from tallystick.pipeline.stream.sink_options import SinkOptions
from tallystick.pipeline.stream.source import StreamDataSource, StreamFollowingReader
from tallystick.pipeline.topic.sink import TopicFollowingWriter
from tallystick.pipeline.topic.sink_options import TopicSinkOptions
from tallystick.pipeline.topic.source import TopicDataSource

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "TALLY_MOMENTS"  # in the environment of the query's processes
PATIENCE_S = 240.0
_POLL_S = 0.01
PLANS, BEGINS, WRITES, WROTE = "plans", "begins", "writes", "wrote"
COMMITS, SPLICES, SPLICED, COMMITTED = "commits", "splices", "spliced", "committed"


@dataclass(frozen=True)
class Reached:
    """Who waits: its process, and the JVM above it (the driver's, or that of an executor)."""

    pid: int
    jvm: int


class Moments:
    """The test's side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def want(self, moment: str) -> None:
        (self.folder / f"wanted-{moment}").touch()

    def wait(self, moment: str, is_over: Callable[[], object]) -> Reached:
        """Wait until somebody came to the moment; it waits, too. ``is_over``: whether nobody can come any more."""
        path, deadline = self.folder / f"reached-{moment}", time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < deadline and is_over() is None, f"nobody came to {moment}"
            time.sleep(_POLL_S)
        return Reached(**json.loads(path.read_text()))

    def go(self, moment: str, *, fail: bool = False) -> None:
        _write(self.folder / f"go-{moment}", "fail" if fail else "")


def reach(moment: str) -> None:
    """Wait if the moment is wanted. Raises RuntimeError if the test says so."""
    if (place := os.environ.get(FOLDER)) is None:
        return
    folder = Path(place)
    try:
        (folder / f"wanted-{moment}").rename(folder / f"taken-{moment}")
    except FileNotFoundError:
        return
    _write(folder / f"reached-{moment}", json.dumps({"pid": os.getpid(), "jvm": _jvm_above(os.getpid())}))
    go, deadline = folder / f"go-{moment}", time.monotonic() + PATIENCE_S
    while not go.exists():
        if time.monotonic() > deadline:
            os.kill(os.getpid(), signal.SIGKILL)  # the test is gone
        time.sleep(_POLL_S)
    if go.read_text():
        raise RuntimeError(f"a planned failure at {moment}")


def _write(path: Path, text: str) -> None:
    part = path.with_name(f"part-{path.name}")
    part.write_text(text)
    part.rename(path)


def _jvm_above(pid: int) -> int:
    while b"java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


class MomentsDataSource(StreamDataSource):
    @classmethod
    def name(cls) -> str:
        return "tally-moments"

    def following_reader(self, options: StreamSourceOptions, schema: StructType) -> StreamFollowingReader:
        return _Reader(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _Writer(SinkOptions.parse(options_of_read(self.options), follows=True), schema)


class _Reader(StreamFollowingReader):
    _batches = 0  # that this process has planned

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        reach(f"{PLANS}.{self._batches}")
        self._batches += 1
        return super().latestOffset(start, limit)


class _Writer(StreamFollowingWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _written(super().write, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reach(f"{COMMITS}.{batchId}")
        _watch_splices()
        super().commit(messages, batchId)
        reach(f"{COMMITTED}.{batchId}")


class TopicMomentsDataSource(TopicDataSource):
    """Writes into a topic: a commit has nothing to splice."""

    @classmethod
    def name(cls) -> str:
        return "tally-topic-moments"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _TopicWriter(TopicSinkOptions.parse(options_of_read(self.options), follows=True), schema)


class _TopicWriter(TopicFollowingWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _written(super().write, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reach(f"{COMMITS}.{batchId}")
        super().commit(messages, batchId)
        reach(f"{COMMITTED}.{batchId}")


Write = Callable[[Iterator["pa.RecordBatch"]], WriterCommitMessage]


def _written(write: Write, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    """What a task does; that of the last partition comes to the moments."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() != 1:
        return write(iterator)
    batch = context.getLocalProperty("streaming.sql.batchId")
    reach(f"{BEGINS}.{batch}")
    message = write(_watched(iterator, f"{WRITES}.{batch}"))
    reach(f"{WROTE}.{batch}")
    return message


def _watched(batches: Iterator[pa.RecordBatch], moment: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        reach(moment)  # whoever asks for the next one has written this one


_splice: Any = StreamSink._splice  # no moment of a commit is nearer to its compare-and-set


def _watch_splices() -> None:
    async def splice(self: StreamSink, stored: Any, batch: Batch) -> bool:
        reach(f"{SPLICES}.{batch.number}")
        done: bool = await _splice(self, stored, batch)
        reach(f"{SPLICED}.{batch.number}")
        return done

    StreamSink._splice = splice  # type: ignore[method-assign]
