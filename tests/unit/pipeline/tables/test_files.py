"""What a task does with its rows, without Spark: files, their partitions, and what is said of them."""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.pipeline.tables import files
from tallystick.pipeline.tables.file_stats import column_stats
from tallystick.pipeline.tables.files import FilesTask, WrittenFile, partitioned

DAYS = [date(2026, 1, 1), date(2026, 1, 2), None]


def batch(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "n": pa.array(numbers, pa.int64()),
            "_dead_letter": pa.array([b"x" if n % 10 == 0 else None for n in numbers], pa.binary()),
            "event_day": pa.array([DAYS[n % 3] for n in numbers], pa.date32()),
            "event_hour": pa.array([n % 2 for n in numbers], pa.int32()),
        }
    )


def run(task: FilesTask, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
    (outcome,) = task(batches)
    return [WrittenFile.parse(text) for text in outcome.column("file").to_pylist()]


def task(folder: Path, **others: object) -> FilesTask:
    settings = {"partitions": (), "has_partitions": False, "target_file_bytes": 1 << 30, **others}
    return FilesTask(folder.as_uri(), "tally-a-", **settings)  # type: ignore[arg-type]  # of several types


def test_rows_of_a_partition_keep_their_order() -> None:
    parts = {
        values: rows.column("n").to_pylist() for values, rows in partitioned(batch(12), ("event_day", "event_hour"))
    }
    days = ["2026-01-01", "2026-01-02", None]
    assert parts == {(days[n % 3], str(n % 2)): [n, n + 6] for n in range(6)}


def test_one_file_of_all_rows(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    (file,) = run(task(folder), [batch(20), batch(0), batch(5, 20)])
    assert (file.rows, file.dead_letters, file.partition) == (25, 3, {})
    assert file.size == (folder / file.path).stat().st_size
    assert pq.read_table(folder / file.path).column("n").to_pylist() == list(range(25))
    assert file.stats["numRecords"] == 25 and file.stats["maxValues"]["n"] == 24


@pytest.mark.parametrize("has_partitions", [False, True])
def test_a_file_for_each_partition(tmp_path: Path, has_partitions: bool) -> None:
    written = run(task(tmp_path, partitions=("event_day",), has_partitions=has_partitions), [batch(30), batch(30, 30)])
    assert {file.partition["event_day"]: file.rows for file in written} == {
        "2026-01-01": 20,
        "2026-01-02": 20,
        None: 20,
    }
    (first,) = (file for file in written if file.partition["event_day"] == "2026-01-01")
    assert first.path.startswith("event_day=2026-01-01/tally-a-")
    table = pq.read_table(tmp_path / first.path, partitioning=None)
    assert table.column("n").to_pylist() == list(range(0, 60, 3))
    assert ("event_day" in table.column_names) == has_partitions


def test_full_files_are_closed_and_few_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run(task(tmp_path, target_file_bytes=1_000), [batch(100, at) for at in range(0, 1000, 100)])) == 10
    monkeypatch.setattr(files, "MAX_OPEN_FILES", 2)
    monkeypatch.setattr(files, "MAX_BUFFERED_BYTES", 500)
    written = run(task(tmp_path, partitions=("event_day",)), [batch(30), batch(30, 30)])
    rows = [
        n for file in written for n in pq.read_table(tmp_path / file.path, partitioning=None).column("n").to_pylist()
    ]
    assert sorted(rows) == list(range(60)) and len(written) > 3


def hours(count: int, each: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(count * each)), "event_hour": pa.array([*range(count)] * each)})


def test_rows_of_many_partitions_in_any_order_make_a_file_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one whenever another partition comes: batches of a backlog are not in the order of time."""
    monkeypatch.setattr(files, "MAX_OPEN_FILES", 3)
    written = run(task(tmp_path, partitions=("event_hour",)), [hours(20, 2)] * 4)
    assert [file.rows for file in written] == [8] * 20
    (first,) = (file for file in written if file.partition["event_hour"] == "7")
    assert pq.read_table(tmp_path / first.path, partitioning=None).column("n").to_pylist() == [7, 27] * 4


def test_thousands_of_partitions_make_a_file_each_and_few_handles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a backlog: each batch of rows has some of all hours. What waits in memory is what the bound says."""
    count, most = 2_000, 8 * 1024 * 1024
    monkeypatch.setattr(files, "MAX_BUFFERED_BYTES", most)
    waiting: list[int] = []
    add = files._TaskFiles.add

    def counted(task_files: files._TaskFiles, partition: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        add(task_files, partition, rows)
        waiting.append(task_files._buffered)

    monkeypatch.setattr(files._TaskFiles, "add", counted)
    handles: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield hours(count, 2)
            handles.append(len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    written = run(task(tmp_path, partitions=("event_hour",)), batches())
    assert max(waiting) <= most and max(handles) <= before + files.MAX_OPEN_FILES + 8
    assert [file.rows for file in written] == [6] * count
    assert sum(1 for _ in tmp_path.rglob("*.parquet")) == count


@pytest.mark.parametrize("bound", ["MAX_BUFFERED_BYTES", "ROW_GROUP_BYTES"])
def test_few_files_are_open_whatever_bound_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(files, "MAX_OPEN_FILES", 3)
    monkeypatch.setattr(files, bound, 2_000)
    handles: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            yield hours(20, 2)
            handles.append(
                sum(os.path.realpath(f"/proc/self/fd/{n}").endswith(".parquet") for n in os.listdir("/proc/self/fd"))
            )

    written = run(task(tmp_path, partitions=("event_hour",)), batches())
    assert sum(file.rows for file in written) == 160 and len(written) > 20
    assert 0 < max(handles) <= 3


@pytest.mark.parametrize("bound", ["MAX_BUFFERED_BYTES", "ROW_GROUP_BYTES"])
def test_rows_do_not_wait_in_memory_for_a_full_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(files, bound, 500)
    (file,) = run(task(tmp_path), [batch(30), batch(30, 30)])
    assert pq.ParquetFile(tmp_path / file.path).num_row_groups == 2


def test_an_attempt_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert run(task(tmp_path), [batch(0)]) == [] and run(task(tmp_path), []) == []
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BUFFERED_BYTES", 1)

    def batches() -> object:
        yield batch(5)
        raise RuntimeError("the source died")

    with pytest.raises(RuntimeError, match="the source died"):
        run(task(tmp_path), batches())  # type: ignore[arg-type]
    assert list(tmp_path.glob("**/*.parquet")) == []


def test_the_least_and_the_largest_values(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
    table = pa.table(
        {
            "n": pa.array([3, None, 1], pa.int64()),
            "t": pa.array([at, at, at], pa.timestamp("us", "UTC")),
            "d": pa.array([DAYS[0], DAYS[1], None], pa.date32()),
            "nan": [1.0, float("nan"), 2.0],
            "long": ["a", "x" * 100, "c"],
            "none": pa.array([None] * 3, pa.string()),
            "map": pa.array([[("k", "v")]] * 3, pa.map_(pa.string(), pa.string())),
        }
    )
    pq.write_table(table, tmp_path / "f", row_group_size=2)
    stats = column_stats(pq.read_metadata(tmp_path / "f"))
    assert stats["minValues"]["n"] == 1 and stats["maxValues"]["n"] == 3 and stats["nullCount"]["n"] == 1
    assert (
        stats["minValues"]["t"] == "2026-01-01T12:00:00.000Z" and stats["maxValues"]["t"] == "2026-01-01T12:00:00.001Z"
    )
    assert (stats["minValues"]["d"], stats["maxValues"]["d"]) == ("2026-01-01", "2026-01-02")
    assert stats["nullCount"]["none"] == 3
    assert stats["minValues"].keys() == stats["maxValues"].keys() == {"n", "t", "d"}
    assert stats["nullCount"].keys() == {"n", "t", "d", "nan", "long", "none"}, "of no parts of columns"


@pytest.mark.parametrize(
    ("micros", "bounds"),
    [
        (-62_135_596_800_000_000, ("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z")),
        (253_402_300_799_999_000, ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z")),
        (253_402_300_799_999_999, None),  # rounded up it is in no year that Python has
        (-62_135_596_800_000_001, None),
        ((1 << 63) - 1, None),
    ],
)
def test_times_at_the_ends_of_the_calendar_and_behind(
    tmp_path: Path, micros: int, bounds: tuple[str, str] | None
) -> None:
    """A producer whose clock counts in other units sends them."""
    rows = {"n": [1], "t": pa.array([micros], pa.timestamp("us", "UTC"))}
    (file,) = run(task(tmp_path), [pa.RecordBatch.from_pydict(rows)])
    assert file.stats["minValues"].get("t") == (bounds and bounds[0])
    assert file.stats["maxValues"].get("t") == (bounds and bounds[1])
    assert file.stats["nullCount"]["t"] == 0 and file.stats["maxValues"]["n"] == 1
