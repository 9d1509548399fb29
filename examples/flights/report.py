"""Each result against the source, and what the page and the terminal say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from examples.flights import verify
from examples.flights.results import Derived, compare_derived, lag, read_delta
from examples.flights.story import Moment, Run
from examples.flights.stream_story import StreamRun
from examples.flights.topic_story import TopicRun

STREAM_TABLE, TOPIC_TABLE, DELTA_TABLE = "stream.parquet", "topic.parquet", "topic.delta"


class Counts(NamedTuple):
    """Rows of one result; all but the first must be 0."""

    rows: int
    lost: int
    doubled: int
    different: int


@dataclass(frozen=True)
class Section:
    """One result: what is said of it, which of its rows are wrong, and whether none is."""

    title: str
    counts: Counts
    lines: Sequence[tuple[str, str]]
    good: bool
    faults: Sequence[str] = ()


@dataclass(frozen=True)
class Half:
    """One log's part of the run, with its results. ``steps``: of a change of owner."""

    title: str
    run: Run
    sections: Sequence[Section]
    steps: Sequence[str] = ()

    @property
    def good(self) -> bool:
        return all(section.good for section in self.sections)


def halves(folder: Path, source: pa.Table, stream: StreamRun, topic: TopicRun, derived: Derived) -> list[Half]:
    """Whatever was made of the two logs against the source."""
    stream.commits = derived.commits
    first = [_of_stream(folder, source, stream), _of_derived(source, stream, derived)]
    second = [_of_topic(folder, source, topic), _of_delta(folder, source, topic)]
    for run in (stream, topic):
        _tell_of_query(run)
    return [
        Half("A stream on bookies, and one derived from it", stream, first, stream.steps),
        Half("A topic on a master and its slave, and a table that follows it", topic, second),
    ]


def _tell_of_query(run: Run) -> None:
    """Add the moments of the query, which are known by what it has left."""
    if any(commit.time > run.killed_at for commit in run.commits):
        seconds = run.spark_away_s
        again = f"the query's batch {run.killed_batch} came again: its rows are visible {seconds:.1f} s after the kill"
        run.moments.append(Moment(run.killed_at + seconds, again))
        end = max(commit.time for commit in run.commits)
        run.moments.append(Moment(end, "the query has caught up: all rows visible"))
        run.moments.sort(key=lambda moment: moment.time)


def _counts(verdict: verify.Verdict) -> Counts:
    return Counts(verdict.rows, max(verdict.lost, verdict.missing), verdict.doubled, verdict.different)


def _findings(verdict: verify.Verdict, order: str) -> list[tuple[str, str]]:
    """What holds for each table."""
    return [
        ("rows in the table", f"{verdict.rows:,}"),
        ("acknowledged rows lost", f"{verdict.lost:,} of {verdict.acknowledged:,}"),
        ("rows doubled", f"{verdict.doubled:,}"),
        ("source rows missing", f"{verdict.missing:,}"),
        ("rows that differ from the source in any column", f"{verdict.different:,}"),
        (order, f"{verdict.out_of_order:,}"),
    ]


def _query(run: Run) -> list[tuple[str, str]]:
    """How far the streaming query was, and what the kill of its driver did."""
    if not run.commits:
        return [("commits", "none")]
    times = sorted({commit.time for commit in run.commits} | {each.time for each in run.acked})
    worst = max(lag(run.acked, run.commits, times))
    return [
        ("commits", f"{len(run.commits):,}"),
        ("Spark's driver killed in batch", f"{run.killed_batch}, next rows {run.spark_away_s:.1f} s later"),
        ("rows behind, at most", f"{worst:,}"),
        ("all rows visible", f"{run.behind_s:.1f} s after the last was acknowledged"),
    ]


def _of_stream(folder: Path, source: pa.Table, run: StreamRun) -> Section:
    verdict = verify.compare(source, pq.read_table(folder / STREAM_TABLE), verify.LEDGERS, run.acked)
    lines = [
        *_findings(verdict, "rows out of order"),
        ("messages read back from the stream", f"{run.messages:,}"),
        ("with another key, event time, number or bytes", f"{run.unlike:,}"),
        ("ledgers of the stream", ", ".join(map(str, run.ledgers))),
        ("ensemble changes", "; ".join(run.ensemble_changes) or "none"),
        ("what the dead bookie had, on others again", run.copies),
        ("without an owner that acknowledges", f"{run.away_s:.2f} s, resumed at row {run.resumed_at:,}"),
        ("stored unacknowledged, then repeated", f"{run.in_doubt:,} rows"),
        ("write rate (paced, faults included)", f"{run.rate:,.0f} rows/s"),
    ]
    good = verdict.good and run.messages == len(source) and not run.unlike and run.copied_ledgers > 0
    unlike = [f"message unlike the source: at {position}" for position in run.unlike_at]
    faults = [*verdict.faults, *unlike]
    return Section("The stream, as Spark reads it into Parquet", _counts(verdict), lines, good, faults)


def _of_derived(source: pa.Table, run: StreamRun, derived: Derived) -> Section:
    verdict = compare_derived(source, derived.table)
    lines = [
        ("messages, one for each flight", f"{verdict.rows:,}"),
        ("rows lost", f"{verdict.lost:,}"),
        ("rows doubled", f"{verdict.doubled:,}"),
        ("with another carrier, hour, delay or event time", f"{verdict.different:,}"),
        *_query(run),
    ]
    counts = Counts(verdict.rows, verdict.lost, verdict.doubled, verdict.different)
    title = "The stream of delays, derived by a query and written exactly once"
    return Section(title, counts, lines, verdict.good, verdict.faults)


def _of_topic(folder: Path, source: pa.Table, run: TopicRun) -> Section:
    verdict = verify.compare(source, pq.read_table(folder / TOPIC_TABLE), verify.QUEUES, run.acked)
    lines = [
        *_findings(verdict, "rows out of order in their queue"),
        ("slave alone, the first time", f"{run.served:,} messages, resumed at row {run.resumed_at:,}"),
        ("slave when the master died for good", run.behind),
        ("write rate (paced, faults included)", f"{run.rate:,.0f} rows/s"),
    ]
    title = "The topic, as Spark reads it from the slave into Parquet"
    return Section(title, _counts(verdict), lines, verdict.good, verdict.faults)


def _of_delta(folder: Path, source: pa.Table, run: TopicRun) -> Section:
    delta = read_delta(folder / DELTA_TABLE)
    run.commits = delta.commits
    # The table has the fields of the messages: the event time is reckoned from two of them.
    verdict = verify.compare(source.drop_columns(["event_time"]), delta.table, verify.QUEUES, run.acked)
    lines = [
        *_findings(verdict, "rows out of order in their queue"),
        ("rows set aside", f"{delta.set_aside:,}"),
        ("version and files", f"{delta.version}, {delta.files:,} files"),
        *_query(run),
    ]
    good = verdict.good and not delta.set_aside
    title = "The Delta table that was kept up to date with the topic"
    return Section(title, _counts(verdict), lines, good, verdict.faults)
