"""What the driver does with a batch, without Spark: the table has it once, whatever comes between."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tallystick.errors import CheckpointLost, MetadataConflict, UsageError
from tallystick.pipeline.checkpoint import batch_offsets, read_note
from tallystick.pipeline.tables import writer as module
from tallystick.pipeline.tables.files import FilesTask, WrittenFile
from tallystick.pipeline.tables.last_commit import NOTE, LastCommit
from tallystick.pipeline.tables.names import FileName
from tallystick.pipeline.tables.record import TableRecord
from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.pipeline.tables.sweep import LOOK_EVERY_S
from tallystick.pipeline.tables.target import CommitLost, TableState
from tallystick.pipeline.tables.writer import COMMIT_TRIES, BatchWriter
from tallystick.runtime.events import Event, Events

SCHEMA = pa.schema([("n", pa.int64())])
MORE = pa.schema([("n", pa.int64()), ("late", pa.string())])
QUERY = "0e8a63a2-0000-4000-8000-000000000001"
SETTINGS = IngestSettings(schema="raw", compact_every=2)


class Table:
    """A table in memory. ``meanwhile``: what others do before each of the next commits."""

    name, has_partitions_in_files, can_compact = "memory:t", False, True

    def __init__(self, folder: Path) -> None:
        self.folder = folder.as_uri()
        self.schema: pa.Schema | None = None
        self.partitions: tuple[str, ...] = ()
        self.records: dict[str, TableRecord] = {}
        self.files: list[str] = []
        self.version, self.loaded = 0, -1
        self.meanwhile: list[Callable[[], None]] = []
        self.compactions = list[int]()

    def load(self, application: str) -> TableState | None:
        self.loaded = self.version
        if self.schema is None:
            return None
        record = self.records.get(application)
        return TableState(str(self.version), self.schema, self.partitions, record, self.folder)

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        self.schema, self.partitions = schema, tuple(partitions)
        self.version += 1

    def commit(self, files: Sequence[WrittenFile], new: pa.Schema, application: str, written: TableRecord) -> str:
        loaded = self.loaded
        if self.meanwhile:
            self.meanwhile.pop()()
        if loaded != self.version:
            raise CommitLost
        assert self.schema is not None
        self.schema = pa.schema([*self.schema, *new])
        self.files += [each.path for each in files]
        self.records[application] = written
        self.version += 1
        return str(self.version)

    def compact(self, target_file_bytes: int) -> dict[str, int]:
        self.compactions.append(self.version)
        return {"removed": 0, "added": 0}

    def listed(self, files: Mapping[str, float]) -> set[str]:
        return {name for name in files if name in self.files}

    def other(self) -> None:
        """Another writer commits."""
        self.version += 1


class Frame:
    """A batch: the file that each of its tasks writes."""

    def __init__(self, *names: str, schema: pa.Schema = SCHEMA) -> None:
        self.files = [WrittenFile(name, {}, rows=2, size=10, dead_letters=1, stats={}) for name in names]
        self.schema = schema
        self.runs, self.task = 0, cast("Any", None)
        context = SimpleNamespace(getLocalProperty=lambda name: QUERY)
        self.sparkSession = SimpleNamespace(sparkContext=context)

    def mapInArrow(self, task: object, schema: object) -> Frame:
        self.task = task
        return self

    def collect(self) -> list[tuple[str]]:
        self.runs += 1
        return [(json.dumps(asdict(each)),) for each in self.files]


class Bench:
    """A writer of a table, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.events: list[Event] = []
        self.checkpoint = str(folder / "checkpoint")
        (folder / "checkpoint" / "offsets").mkdir(parents=True)
        self.table = Table(folder)
        self.writer = self.another()

    def another(self, settings: IngestSettings = SETTINGS, clock: Callable[[], float] = time.time) -> BatchWriter:
        """That of another driver."""
        return BatchWriter(self.table, "a", self.checkpoint, settings, Events(self.events.append), clock=clock)

    def run(self, number: int, frame: Frame, *, writer: BatchWriter | None = None, offsets: str = "") -> Frame:
        Path(self.checkpoint, "offsets", str(number)).write_text(f"v1\n{{}}\n{offsets or number}")
        (writer or self.writer)(cast("Any", frame), number)
        return frame

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(module, "arrow_schema", lambda schema: schema)
    monkeypatch.setattr(module, "BatchRows", lambda settings: SimpleNamespace(shaped=lambda rows, table: rows))
    return Bench(tmp_path)


def test_a_table_is_made_and_gets_each_batch_with_its_record(bench: Bench) -> None:
    bench.run(0, Frame("f0", "f1"))
    task = bench.run(1, Frame("f2", schema=MORE)).task
    prefix = FileName("a", QUERY, 1).prefix
    assert task == FilesTask(bench.table.folder, prefix, (), False, SETTINGS.target_file_bytes)
    assert bench.table.files == ["f0", "f1", "f2"] and bench.table.schema == MORE
    assert bench.table.records["a"] == TableRecord(QUERY, 1, batch_offsets(bench.checkpoint, 1))
    assert bench.kinds() == [
        "table created", "batch committed", "rows set aside", "columns added", "batch committed", "rows set aside",
        "table compacted",
    ]  # fmt: skip
    progress = bench.writer.progress
    assert (progress.batch, progress.batches, progress.skipped) == (1, 2, 0)
    assert (progress.rows, progress.dead_letters, progress.files, progress.bytes) == (6, 3, 3, 30)
    assert progress.version == str(bench.table.version)
    assert read_note(bench.checkpoint, NOTE, LastCommit) == LastCommit("memory:t", "a", 1)


def test_a_batch_in_many_partitions_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks' files of one partition are in one."""
    monkeypatch.setattr(module, "MANY_PARTITIONS", 3)
    for number, count in enumerate((3, 4)):
        frame = Frame(*(f"f{number}{n}" for n in range(2 * count)))
        frame.files = [replace(file, partition={"event_day": str(n // 2)}) for n, file in enumerate(frame.files)]
        bench.run(number, frame)
    [told] = [event for event in bench.events if event.kind == "batch in many partitions"]
    assert (told.fields["batch"], told.fields["partitions"], told.fields["files"], told.fields["rows"]) == (1, 4, 8, 16)


def test_a_batch_that_the_table_has_is_not_written_again(bench: Bench) -> None:
    bench.run(0, Frame("f0"))
    writer = bench.another()
    assert bench.run(0, Frame("f0, again"), writer=writer).runs == 0
    assert bench.table.files == ["f0"]
    assert (writer.progress.batch, writer.progress.batches, writer.progress.skipped) == (0, 0, 1)


def test_a_batch_of_an_older_checkpoint_is_refused_before_a_row_is_written(bench: Bench) -> None:
    bench.run(0, Frame("f0"))
    other = Frame("f1")
    with pytest.raises(CheckpointLost):
        bench.run(0, other, offsets="elsewhere")
    assert other.runs == 0 and isinstance(bench.writer.error, CheckpointLost)


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_table_that_lost_a_batch_while_the_query_ran_is_not_written_on(bench: Bench, *, is_made_anew: bool) -> None:
    """What it had would never come again: its copy was put back, or it was deleted, beside the query."""
    bench.run(0, Frame("f0"))
    before = dict(bench.table.records)
    bench.run(1, Frame("f1"))
    bench.table.records, bench.table.schema = before, None if is_made_anew else SCHEMA
    batch = Frame("f2")
    with pytest.raises(CheckpointLost, match="batch 1 of application a was committed to this table, which lacks it"):
        bench.run(2, batch)
    assert batch.runs == 0 and "f2" not in bench.table.files


def test_a_batch_without_rows_is_no_commit(bench: Bench) -> None:
    bench.run(0, Frame("f0"))
    version = bench.table.version
    bench.run(1, Frame())
    assert bench.table.version == version and bench.writer.progress.batch == 0


def test_a_commit_that_others_overtook_is_decided_again_on_the_table_as_it_is_then(bench: Bench) -> None:
    bench.run(0, Frame("f0"))

    def add_the_column() -> None:
        bench.table.schema = MORE
        bench.table.other()

    bench.table.meanwhile = [add_the_column, bench.table.other]
    assert bench.run(1, Frame("f1", schema=MORE)).runs == 1, "its files are there"
    assert bench.table.files == ["f0", "f1"] and bench.table.schema == MORE
    assert "columns added" not in bench.kinds()


def test_of_two_drivers_that_write_a_batch_one_commits(bench: Bench) -> None:
    bench.run(0, Frame("f0"))
    first = bench.another()
    bench.table.meanwhile = [lambda: cast("None", bench.run(1, Frame("of the first"), writer=first))]
    bench.run(1, Frame("of the second"))
    assert bench.table.files == ["f0", "of the first"]
    assert bench.writer.progress.skipped == 1 and first.progress.skipped == 0
    assert bench.writer.progress.batch == 1 and bench.writer.progress.rows == 2


def test_a_table_that_others_write_all_the_time_ends_the_query_and_has_nothing_of_the_batch(bench: Bench) -> None:
    bench.run(0, Frame("f0"))
    bench.table.meanwhile = [bench.table.other] * (2 * COMMIT_TRIES)
    with pytest.raises(MetadataConflict, match="nothing of the batch is in the table"):
        bench.run(1, Frame("f1"))
    assert len(bench.table.meanwhile) == COMMIT_TRIES and bench.table.files == ["f0"]
    assert isinstance(bench.writer.error, MetadataConflict)
    bench.table.meanwhile = []
    bench.run(1, Frame("f1"))
    assert bench.table.files == ["f0", "f1"]


def test_a_table_of_other_partitions_is_refused_before_a_row_is_written(bench: Bench) -> None:
    bench.table.create(SCHEMA, ["event_day"])
    frame = Frame("f0")
    with pytest.raises(UsageError):
        bench.run(0, frame)
    assert frame.runs == 0


def test_a_column_of_another_type_is_refused_before_a_row_is_written(bench: Bench) -> None:
    bench.run(0, Frame("f0"))
    frame = Frame("f1", schema=pa.schema([("n", pa.string())]))
    with pytest.raises(UsageError):
        bench.run(1, frame)
    assert frame.runs == 0


def test_small_files_are_made_large_ones_now_and_then(bench: Bench) -> None:
    for number in range(5):
        bench.run(number, Frame(f"f{number}"))
    assert len(bench.table.compactions) == 2
    never = bench.another(IngestSettings(schema="raw", compact_every=0))
    bench.run(5, Frame("f5"), writer=never)
    bench.table.can_compact = False
    for number in (6, 7):
        bench.run(number, Frame(f"f{number}"))
    assert len(bench.table.compactions) == 2


def test_what_keeps_a_table_and_fails_ends_no_query(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Table, "compact", fail)
        for number in range(2):
            bench.run(number, Frame(f"f{number}"))
    assert bench.table.files == ["f0", "f1"] and bench.writer.error is None
    [event] = [event for event in bench.events if event.kind == "table not kept"]
    assert event.fields["reason"] == "OSError: no space left"


def test_files_of_tasks_that_ran_twice_are_deleted_behind_a_later_commit(bench: Bench, tmp_path: Path) -> None:
    now = [time.time() + 2 * SETTINGS.orphan_age_s]
    writer = bench.another(clock=lambda: now[0])
    twice = tmp_path / f"{FileName('a', QUERY, 0).prefix}0000000000000000.parquet"
    twice.touch()
    for number in range(3):
        bench.run(number, Frame(f"f{number}"), writer=writer)
        now[0] += LOOK_EVERY_S
    assert not twice.exists() and "orphan files deleted" in bench.kinds()


def test_a_batch_waits_for_the_one_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that was stopped may still write its last one when its next start has begun."""
    bench.run(0, Frame("f0"))
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(10)

    bench.table.meanwhile = [wait]
    first = threading.Thread(target=lambda: bench.run(1, Frame("f1")))
    first.start()
    assert begun.wait(10)
    again = Frame("f1, again")
    second = threading.Thread(target=lambda: bench.run(1, again))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    go_on.set()
    first.join(10)
    second.join(10)
    assert again.runs == 0 and bench.table.files == ["f0", "f1"]
