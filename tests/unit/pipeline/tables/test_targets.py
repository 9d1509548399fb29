"""Commits of real tables, without Spark: one of two wins, and what nobody lists is found."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tallystick.errors import CorruptRecord, Unavailable, UsageError
from tallystick.pipeline.tables.delta import DeltaTarget
from tallystick.pipeline.tables.files import FilesTask, WrittenFile
from tallystick.pipeline.tables.iceberg import IcebergTarget
from tallystick.pipeline.tables.names import FileName
from tallystick.pipeline.tables.record import TableRecord
from tallystick.pipeline.tables.sweep import LOOK_EVERY_S, Sweep
from tallystick.pipeline.tables.target import CommitLost, TableState, TableTarget
from tallystick.runtime.events import Event, Events

SCHEMA = pa.schema([("n", pa.int64()), ("event_day", pa.date32()), ("_dead_letter", pa.binary())])
MORE = pa.schema([("late", pa.string())])
NONE = pa.schema([])
QUERY = str(uuid.UUID(int=(1 << 127) + 5))
Make = Callable[[], TableTarget]


@pytest.fixture(params=["delta", "iceberg"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Each call is another driver's handle of one table."""

    def iceberg() -> TableTarget:
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
        return IcebergTarget("demo.t", catalog)

    return iceberg if request.param == "iceberg" else lambda: DeltaTarget(str(tmp_path / "a table"))


def record(batch: int) -> TableRecord:
    return TableRecord(QUERY, batch, batch + 100)


def loaded(target: TableTarget, application: str = "a") -> TableState:
    state = target.load(application)
    assert state is not None
    return state


def written(target: TableTarget, numbers: range, batch: int = 0, **more: str) -> list[WrittenFile]:
    """Files that a task made."""
    columns = {
        "n": pa.array(numbers, pa.int64()),
        "_dead_letter": pa.nulls(len(numbers), pa.binary()),
        **{name: pa.array([value] * len(numbers)) for name, value in more.items()},
        "event_day": pa.array([20_000 + n % 2 for n in numbers], pa.int32()).cast(pa.date32()),
    }
    prefix = FileName("a", QUERY, batch).prefix
    task = FilesTask(loaded(target).folder, prefix, ("event_day",), target.has_partitions_in_files, 1 << 20)
    (outcome,) = task([pa.RecordBatch.from_pydict(columns)])
    return [WrittenFile.parse(text) for text in outcome.column("file").to_pylist()]


def rows(target: TableTarget) -> list[int]:
    """What a reader of the table gets."""
    loaded(target)
    if isinstance(target, DeltaTarget):
        from deltalake import DeltaTable

        return sorted(DeltaTable(target._place).to_pyarrow_table().column("n").to_pylist())
    assert isinstance(target, IcebergTarget) and target._table is not None
    return sorted(target._table.scan().to_arrow().column("n").to_pylist())


@pytest.fixture
def target(make: Make) -> TableTarget:
    """A new table."""
    made = make()
    assert made.load("a") is None
    made.create(SCHEMA, ["event_day"])
    made.create(SCHEMA, ["event_day"])  # by another driver at once
    return made


def test_a_commit_has_files_columns_and_the_record(target: TableTarget) -> None:
    state = loaded(target)
    assert (state.record, state.partitions, state.schema.names) == (None, ("event_day",), SCHEMA.names)
    target.commit(written(target, range(4)), NONE, "a", record(0))
    target.commit(written(target, range(4, 7), 1, late="x"), MORE, "a", record(1))
    state = loaded(target)
    assert state.record == record(1) and state.schema.names == [*SCHEMA.names, "late"]
    assert loaded(target, "b").record is None
    assert rows(target) == list(range(7))


@pytest.mark.parametrize("new", [NONE, MORE])
def test_of_two_drivers_one_commits(make: Make, target: TableTarget, new: pa.Schema) -> None:
    one, other = make(), make()
    for each in (one, other):
        loaded(each)
    more = {"late": "x"} if len(new) else {}
    files, late = written(one, range(4), 0, **more), written(other, range(4), 0, **more)
    one.commit(files, new, "a", record(0))
    with pytest.raises(CommitLost):
        other.commit(late, new, "a", record(0))
    assert loaded(other).record == record(0) and rows(other) == list(range(4))


def test_of_two_drivers_one_commits_though_the_other_has_a_column_to_add(make: Make, target: TableTarget) -> None:
    """Delta takes the column on its own, and on top of what the first one has committed."""
    one, other = make(), make()
    for each in (one, other):
        loaded(each)
    files, late = written(one, range(4)), written(other, range(4), late="x")
    one.commit(files, NONE, "a", record(0))
    with pytest.raises(CommitLost):
        other.commit(late, MORE, "a", record(0))
    assert loaded(other).record == record(0) and rows(other) == list(range(4))


def test_a_query_that_lost_its_checkpoint_does_not_commit_though_it_has_a_column_to_add(
    make: Make, target: TableTarget
) -> None:
    """Its batch has a later number than what the other one committed meanwhile."""
    late = make()
    loaded(late)
    files = written(late, range(4, 6), 7, late="x")
    target.commit(written(target, range(4)), NONE, "a", record(0))
    another = TableRecord(str(uuid.UUID(int=5)), 7, 107)
    with pytest.raises(CommitLost):
        late.commit(files, MORE, "a", another)
    assert rows(target) == list(range(4))


def test_one_that_was_paused_does_not_commit_a_later_batch_either(make: Make, target: TableTarget) -> None:
    paused = make()
    files = written(paused, range(4, 6), 1)
    target.commit(written(target, range(4)), NONE, "a", record(0))
    with pytest.raises(CommitLost):
        paused.commit(files, NONE, "a", record(1))


def test_a_table_that_was_put_back_or_deleted_is_seen_as_it_is(tmp_path: Path) -> None:
    """By who had it open, too, and what it had read of it is in no log any more."""
    place, target = tmp_path / "t", DeltaTarget(str(tmp_path / "t"))
    target.create(SCHEMA, ["event_day"])
    for batch in range(3):
        loaded(target)
        target.commit(written(target, range(batch, batch + 1), batch), NONE, "a", record(batch))
        if batch == 0:
            shutil.copytree(place, tmp_path / "copy")
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "copy", place)
    assert loaded(target).record == record(0) and rows(target) == [0]
    shutil.rmtree(place)
    assert target.load("a") is None


def test_other_applications_write_beside_it(make: Make, target: TableTarget) -> None:
    other = make()
    target.commit(written(target, range(4)), NONE, "a", record(0))
    loaded(other, "b")
    other.commit(written(other, range(4, 6)), NONE, "b", record(9))
    loaded(target)
    assert rows(target) == list(range(6)) and loaded(target).record == record(0)


def test_only_old_files_that_nothing_lists_are_swept_at_the_second_look(target: TableTarget, make: Make) -> None:
    target.commit(written(target, range(4)), NONE, "a", record(0))
    orphans = written(target, range(4))
    target.commit(written(target, range(4, 6), 1), NONE, "a", record(1))
    if target.can_compact:
        assert target.compact(1 << 20)["replaced"] > 0  # these files are listed by earlier versions
    ahead = written(target, range(6, 8), 2)  # of a batch that may still be committed
    folder = Path(loaded(target).folder.removeprefix("file://").replace("%20", " "))
    events: list[Event] = []
    clock = [os.stat(folder / ahead[0].path).st_mtime + 1]
    sweep = Sweep(target, "a", 60, Events(events.append), lambda: clock[-1])
    before = set(folder.rglob("*.parquet"))
    for wait_s in (0, LOOK_EVERY_S, 1):  # too young; then the first look, and right behind it none
        clock.append(clock[-1] + wait_s)
        sweep.look(record(1))
    assert set(folder.rglob("*.parquet")) == before and events == []
    clock.append(clock[-1] + LOOK_EVERY_S)
    sweep.look(record(1))
    assert before - set(folder.rglob("*.parquet")) == {folder / each.path for each in orphans}
    assert [event.fields["files"] for event in events] == [len(orphans)]
    loaded(target)
    target.commit(ahead, NONE, "a", record(2))
    assert rows(target) == list(range(8))


def times_of(target: TableTarget, files: list[WrittenFile]) -> dict[str, float]:
    folder = Path(loaded(target).folder.removeprefix("file://").replace("%20", " "))
    return {Path(each.path).name: os.stat(folder / each.path).st_mtime for each in files}


def test_what_a_log_of_delta_listed_that_is_gone_is_not_swept(tmp_path: Path) -> None:
    """Delta deletes logs that are older than a month, and an earlier version may be read by its checkpoint."""
    from deltalake import DeltaTable

    target = DeltaTarget(str(tmp_path / "t"))
    target.create(SCHEMA, ["event_day"])
    files = written(target, range(4))
    target.commit(files, NONE, "a", record(0))
    target.commit(written(target, range(4, 6), 1), NONE, "a", record(1))
    assert target.compact(1 << 20)["replaced"] > 0
    DeltaTable(tmp_path / "t").create_checkpoint()
    for log in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    times = times_of(target, files)
    assert target.listed(times) == set(times)


def test_what_an_earlier_snapshot_of_iceberg_lists_is_not_swept(tmp_path: Path) -> None:
    from pyiceberg.expressions import AlwaysTrue

    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    target = IcebergTarget("demo.t", catalog)
    target.create(SCHEMA, ["event_day"])
    files = written(target, range(4))
    target.commit(files, NONE, "a", record(0))
    loaded(target)
    assert target._table is not None
    target._table.delete(AlwaysTrue())
    assert rows(target) == []
    times = times_of(target, files)
    assert target.listed(times) == set(times)


def test_compaction_keeps_rows_and_record(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"))
    target.create(SCHEMA, ["event_day"])
    for batch in range(5):
        target.commit(written(target, range(batch * 2, batch * 2 + 2), batch), NONE, "a", record(batch))
    assert loaded(target).record == record(4)
    assert target.compact(1 << 20) == {"replaced": 10, "by": 2}
    assert rows(target) == list(range(10)) and loaded(target).record == record(4)


def test_a_table_with_rules_that_we_do_not_hold_is_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    made = DeltaTable.create(tmp_path / "t", SCHEMA)
    made.alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(UsageError, match=r"rules that this writer does not hold \(delta.constraints.positive\)"):
        DeltaTarget(str(tmp_path / "t")).load("a")


def test_iceberg_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"named NAMESPACE\.TABLE"):
        IcebergTarget("t", {})
    with pytest.raises(UsageError, match="no catalog of Iceberg"):
        IcebergTarget("demo.t", {}).load("a")


@pytest.mark.parametrize(
    ("catalog", "identifier"),
    [
        ({"type": "sql", "uri": "foo"}, "demo.t"),
        ({"type": "sql", "uri": "nosuch://x/y"}, "demo.t"),
        ({"type": "glue"}, "demo.t"),
        ({"type": "sql", "uri": "sqlite:///HERE/c.db", "warehouse": "file:///proc/nowhere"}, "demo.t"),
        ({"type": "sql", "uri": "sqlite:///HERE/c.db", "warehouse": "nosuch://x"}, "demo.t"),
        ({"type": "sql", "uri": "sqlite:///HERE/c.db", "warehouse": "file://HERE/w"}, "demo.part.t"),
        ({"type": "sql", "uri": "sqlite:///HERE/c.db", "warehouse": "file://HERE/w"}, ".t"),
    ],
)
def test_a_catalog_or_a_name_that_can_have_no_table_is_told_in_one_line(
    tmp_path: Path, catalog: dict[str, str], identifier: str
) -> None:
    target = IcebergTarget(identifier, {key: value.replace("HERE", str(tmp_path)) for key, value in catalog.items()})
    with pytest.raises(UsageError, match=r"cannot be opened in its catalog: .+ right") as refused:
        target.load("a")
        target.create(SCHEMA, [])
    assert "\n" not in str(refused.value) and f"table=iceberg:{identifier}" in str(refused.value)


@pytest.mark.parametrize(
    "catalog", [{"type": "rest", "uri": "http://127.0.0.1:1"}, {"type": "sql", "uri": "sqlite:////proc/nowhere/c.db"}]
)
def test_a_catalog_that_does_not_answer_is_unavailable(catalog: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match=r"cannot be opened in its catalog: .{1,300}\. Are the") as refused:
        IcebergTarget("demo.t", catalog).load("a")
    assert "\n" not in str(refused.value)


def test_a_property_of_somebody_else_is_no_record(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    target = IcebergTarget("demo.t", catalog)
    target.create(SCHEMA, [])
    loaded(target)
    assert target._table is not None
    target._table.transaction().set_properties({"tallystick.a": "mine"}).commit_transaction()
    with pytest.raises(CorruptRecord, match="is none of ours"):
        target.load("a")


def test_times_that_python_has_not_are_committed(make: Make) -> None:
    """In columns of the table, that is: no partition is of such a time."""
    target = make()
    target.load("a")
    target.create(pa.schema([("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))]), [])
    for batch, micros in enumerate([253_402_300_800_000_000, -62_135_596_800_000_001, 0]):
        task = FilesTask(loaded(target).folder, FileName("a", QUERY, batch).prefix, (), False, 1 << 20)
        columns = {"n": pa.array([batch]), "t": pa.array([micros], pa.timestamp("us", "UTC"))}
        (outcome,) = task([pa.RecordBatch.from_pydict(columns)])
        files = [WrittenFile.parse(text) for text in outcome.column("file").to_pylist()]
        target.commit(files, NONE, "a", record(batch))
    assert loaded(make()).record == record(2) and rows(target) == [0, 1, 2]


@pytest.mark.parametrize("place", ["/proc/nowhere/t", "nosuch://host/t", "/etc/hostname"])
def test_a_place_that_can_have_no_table_is_named_in_one_line(place: str) -> None:
    target = DeltaTarget(place)
    with pytest.raises(UsageError, match=r"cannot be opened at this place: .*table=delta:") as refused:
        target.load("a")
        target.create(pa.schema([("n", pa.int64())]), ())
    assert "\n" not in str(refused.value) and place in str(refused.value)


def test_storage_that_does_not_answer_is_no_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(place: str) -> None:
        raise OSError("Kernel error\n  \x1b[31m↳\x1b[0m no credentials" + "x" * 1000)

    monkeypatch.setattr(deltalake, "DeltaTable", raises)
    with pytest.raises(Unavailable, match=r"at this place: Kernel error no credentialsx{1,300} "):
        DeltaTarget("s3://bucket/t").load("a")
