"""What the two streaming queries made, the derived stream and the Delta table: read back, compared with the source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

import tallystick
from examples.flights import verify
from examples.flights.acks import AckedRun
from examples.flights.data import UTC_MICROS
from tallystick.admin.streams import stream_ownership

READ_S = 600.0
DEAD_LETTER = "_dead_letter"  # the column of what was set aside


class Commit(NamedTuple):
    """So many rows became visible at ``time`` (Unix s)."""

    time: float
    rows: int


@dataclass(frozen=True)
class Derived:
    """The derived stream as it was read back: ``table`` has the columns row, carrier, hour, dep_delay, event_time."""

    table: pa.Table
    commits: Sequence[Commit]


class Delay(msgspec.Struct):
    """The value of a message."""

    row: int
    hour: int
    dep_delay: int | None


async def _derived(uri: str, stream: str) -> Derived:
    decode = msgspec.json.Decoder(Delay).decode
    rows: list[tuple[int, str | bytes | None, int, int | None, int | None]] = []
    by_ledger: dict[int, int] = {}
    async with asyncio.timeout(READ_S), tallystick.connect(uri) as client:
        async with client.read_stream(stream) as reader:
            async for message in reader.read():
                value = decode(message.data)
                rows.append((value.row, message.key, value.hour, value.dep_delay, message.event_time))
                by_ledger[message.position.ledger] = by_ledger.get(message.position.ledger, 0) + 1
        info = (await stream_ownership(client, stream)).info
    times = {each.ledger: each.timestamp_ms / 1000 for each in info.ledgers}
    kinds = {
        "row": pa.int64(),
        "carrier": pa.string(),
        "hour": pa.int64(),
        "dep_delay": pa.int64(),
        "event_time": pa.timestamp("ms", tz="UTC"),
    }
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    table = pa.table({name: pa.array(column, kinds[name]) for name, column in zip(kinds, columns, strict=True)})
    return Derived(table, [Commit(times[ledger], count) for ledger, count in by_ledger.items()])


def read_derived(uri: str, stream: str) -> Derived:
    """Read the derived stream as anybody can. A commit adds ledgers, which have its time."""
    return asyncio.run(_derived(uri, stream))


@dataclass(frozen=True)
class Comparison:
    """The derived stream against the source, row by row; all but the first must be 0."""

    rows: int
    lost: int
    doubled: int
    different: int
    faults: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.different)


def compare_derived(source: pa.Table, derived: pa.Table) -> Comparison:
    """Each flight's row must be there once, with its carrier, hour, delay and event time."""
    wanted, found = _by_row(source, derived.column_names), derived["row"].to_pylist()
    unique, counts = np.unique(np.array(found, np.int64), return_counts=True)
    lost = np.setdiff1d(source["row"].to_numpy(), unique).tolist()
    values = zip(found, _values(derived, derived.column_names), strict=True)
    different = [row for row, value in values if wanted.get(row) != value]
    faults = (
        *verify.named("lost", lost),
        *verify.named("doubled", unique[counts > 1].tolist()),
        *verify.named("unlike the source", different),
    )
    return Comparison(len(found), len(lost), len(found) - len(unique), len(different), faults)


def _by_row(table: pa.Table, names: Sequence[str]) -> dict[int, tuple[object, ...]]:
    return dict(zip(table["row"].to_pylist(), _values(table, names), strict=True))


def _values(table: pa.Table, names: Sequence[str]) -> list[tuple[object, ...]]:
    at, micros = names.index("event_time"), table["event_time"].cast(UTC_MICROS)
    columns = table.select(names).set_column(at, "event_time", micros)
    return list(zip(*(column.to_pylist() for column in columns.itercolumns()), strict=True))


@dataclass(frozen=True)
class DeltaResult:
    """The Delta table: its rows with the columns of a topic's place, its version, files, and commits."""

    table: pa.Table
    set_aside: int
    version: int
    files: int
    commits: Sequence[Commit]


def read_delta(path: Path) -> DeltaResult:
    """Read the table as any reader of Delta does."""
    from deltalake import DeltaTable

    delta = DeltaTable(str(path))
    stored = delta.to_pyarrow_table()
    places = {f"_{name}": name for name in (verify.QUEUES.part, verify.QUEUES.position)}
    table = stored.rename_columns([places.get(name, name) for name in stored.column_names])
    set_aside = len(stored) - stored[DEAD_LETTER].null_count
    commits = [found for file in sorted((path / "_delta_log").glob("*.json")) if (found := _commit(file)).rows]
    return DeltaResult(table, set_aside, delta.version(), len(delta.file_uris()), commits)


def _commit(file: Path) -> Commit:
    """A version of the table, from its log: an action a line. Compaction adds files, and no rows."""
    actions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    added = [action["add"] for action in actions if "add" in action]
    rows = sum(json.loads(each["stats"])["numRecords"] for each in added if each["dataChange"])
    [time_ms] = [action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action]
    return Commit(time_ms / 1000, rows)


def lag(acked: Sequence[AckedRun], commits: Sequence[Commit], times: Sequence[float]) -> list[int]:
    """At each of the times (rising): the rows that were acknowledged, and are not in the result."""
    arrived = _counted([(run.time, run.count) for run in acked], times)
    visible = _counted(commits, times)
    return [max(0, come - seen) for come, seen in zip(arrived, visible, strict=True)]


def _counted(steps: Sequence[tuple[float, int]], times: Sequence[float]) -> list[int]:
    ordered = sorted(steps)
    total = np.concatenate([[0], np.cumsum([count for _, count in ordered], dtype=np.int64)])
    return [int(count) for count in total[np.searchsorted([time for time, _ in ordered], times, side="right")]]
