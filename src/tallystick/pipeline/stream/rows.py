"""Messages as Arrow arrays, column by column: of each column that a query wants one array, over all rows of a batch."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.bookkeeper.wire.pulsar_messages import InMessage
from tallystick.bookkeeper.wire.stream_values import Position

_TIME = pa.timestamp("us", tz="UTC")
_TYPES = {
    "stream": pa.string(),
    "position": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "publishTime": _TIME,
    "eventTime": _TIME,
    "producer": pa.string(),
    "sequence": pa.int64(),
    "ledger": pa.int64(),
    "entry": pa.int64(),
    "batchIndex": pa.int32(),
}
SCHEMA = pa.schema(list(_TYPES.items()))


class RawEntry(NamedTuple):
    """An entry as it is stored."""

    position: Position
    data: bytes


Row = InMessage | RawEntry


class RowRun(NamedTuple):
    """Rows of one stream, in order: all messages, or all raw entries."""

    stream: str
    rows: Sequence[Row]


def arrays_of(runs: Sequence[RowRun], columns: Sequence[str]) -> list[pa.Array]:
    """One array for each column, over all rows."""
    rows = [row for run in runs for row in run.rows]
    return [_COLUMNS[name](runs, rows) for name in columns]


def _streams(runs: Sequence[RowRun], rows: Sequence[Row]) -> pa.Array:
    return pa.concat_arrays([pa.repeat(pa.scalar(run.stream, pa.string()), len(run.rows)) for run in runs])


def _values(runs: Sequence[RowRun], rows: Sequence[Row]) -> pa.Array:
    if any(isinstance(row, InMessage) and row.is_null for row in rows):
        values = [None if isinstance(row, InMessage) and row.is_null else row.data for row in rows]
        return pa.array(values, pa.binary())
    data = [row.data for row in rows]
    offsets = array("i", accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))])


def _properties(runs: Sequence[RowRun], rows: Sequence[Row]) -> pa.Array:
    maps = [row.properties if isinstance(row, InMessage) else {} for row in rows]
    offsets = array("i", accumulate(map(len, maps), initial=0))
    names = pa.array([name for properties in maps for name in properties], pa.string())
    values = pa.array([value for properties in maps for value in properties.values()], pa.string())
    return pa.MapArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)]), names, values
    )


def _of_messages(
    field: Callable[[InMessage], Any], kind: pa.DataType
) -> Callable[[Sequence[RowRun], Sequence[Row]], pa.Array]:
    """A column that raw entries do not have: null there."""
    return lambda runs, rows: pa.array([field(row) if isinstance(row, InMessage) else None for row in rows], kind)


def _of_places(field: Callable[[Position], Any], kind: pa.DataType) -> Callable[[Sequence[RowRun], Sequence[Row]], Any]:
    return lambda runs, rows: pa.array([field(row.position) for row in rows], kind)


def _times(field: Callable[[InMessage], int | None]) -> Callable[[Sequence[RowRun], Sequence[Row]], pa.Array]:
    """Milliseconds in the message, microseconds in Spark."""
    ms = _of_messages(lambda row: _signed(field(row)), pa.int64())
    return lambda runs, rows: pc.multiply(ms(runs, rows), 1000).view(_TIME)


def _signed(number: int | None) -> int | None:
    """Returns what Java sees of a number of 64 bits."""
    return number if number is None or number < 1 << 63 else number - (1 << 64)


def _key(row: InMessage) -> bytes | None:
    return row.key.encode(errors="replace") if isinstance(row.key, str) else row.key


_COLUMNS: dict[str, Callable[[Sequence[RowRun], Sequence[Row]], Any]] = {
    "stream": _streams,
    "position": _of_places(str, pa.string()),
    "key": _of_messages(_key, pa.binary()),
    "value": _values,
    "properties": _properties,
    "publishTime": _times(lambda row: row.publish_time_ms),
    "eventTime": _times(lambda row: row.event_time_ms),
    "producer": _of_messages(lambda row: row.producer, pa.string()),
    "sequence": _of_messages(lambda row: _signed(row.sequence), pa.int64()),
    "ledger": _of_places(lambda position: position.ledger, pa.int64()),
    "entry": _of_places(lambda position: position.entry, pa.int64()),
    "batchIndex": _of_places(lambda position: None if position.batch_index < 0 else position.batch_index, pa.int32()),
}
