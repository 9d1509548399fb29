"""Messages as Arrow arrays, column by column: of each column that a query wants one array, over all rows of a batch.

A row is a plain tuple, since a query makes millions of them: a named one takes three times as long.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tallystick.bookkeeper.wire.pulsar_messages import Buffer, InMessage
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES
from tallystick.codec.positions import position_texts
from tallystick.pipeline import headers
from tallystick.pipeline.columns import BATCH_BYTES, HEADERS
from tallystick.pipeline.times import TIME, times_of

_TYPES = {
    "stream": pa.string(),
    "position": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "publishTime": TIME,
    "eventTime": TIME,
    "producer": pa.string(),
    "sequence": pa.int64(),
    "ledger": pa.int64(),
    "entry": pa.int64(),
    "batchIndex": pa.int32(),
    **headers.TYPES,
}
SCHEMA = pa.schema(list(_TYPES.items()))

Row = tuple[
    int,  # entry
    int | None,  # index in its batch
    Buffer | None,  # value; None: it has none
    str | bytes | None,  # key
    Mapping[str, str],  # properties
    int | None,  # when it was published, in ms
    int | None,  # when it happened, in ms
    str | None,  # producer
    int | None,  # sequence, as an unsigned number
]
_ENTRY: Final = 0
_INDEX: Final = 1
_VALUE: Final = 2
_KEY: Final = 3
_PROPERTIES: Final = 4
_PUBLISHED: Final = 5
_HAPPENED: Final = 6
_PRODUCER: Final = 7
_SEQUENCE: Final = 8


class RowRun(NamedTuple):
    """Rows of one ledger of a stream, in order. ``size``: the bytes of their values, or some more."""

    stream: str
    ledger: int
    rows: Sequence[Row]
    size: int

    @property
    def row_count(self) -> int:
        """How many rows these are."""
        return len(self.rows)

    def parts(self) -> Iterator[RowRun]:
        """Yields the run in pieces that are no more than a batch."""
        if self.size <= 2 * BATCH_BYTES:  # what was taken until it was enough is seldom more
            yield self
            return
        first = size = 0
        for at, row in enumerate(self.rows):
            row_bytes = bytes_of([row])
            if at > first and size + row_bytes > BATCH_BYTES:
                yield self._replace(rows=self.rows[first:at], size=size)
                first, size = at, 0
            size += row_bytes
        yield self._replace(rows=self.rows[first:], size=size)


def row_of(message: InMessage) -> Row:
    """A message as a row."""
    _, entry, index = message.position
    return (
        entry,
        None if index < 0 else index,
        None if message.is_null else message.data,
        message.key,
        message.properties,
        message.publish_time_ms,
        message.event_time_ms,
        message.producer,
        message.sequence,
    )


def row_of_raw(entry: int, data: Buffer) -> Row:
    """An entry as it is stored: what only messages have is null."""
    return (entry, None, data, None, NO_PROPERTIES, None, None, None, None)


def bytes_of(rows: Iterable[Row]) -> int:
    """How many bytes the values have."""
    return sum(len(row[_VALUE] or b"") for row in rows)


def arrays_of(runs: Sequence[RowRun], columns: Sequence[str]) -> list[pa.Array]:
    """One array for each column, over all rows."""
    rows = list(chain.from_iterable(run.rows for run in runs))
    return [_COLUMNS[name](runs, rows) for name in columns]


def _of_runs(field: Callable[[RowRun], Any], kind: pa.DataType) -> Callable[[Sequence[RowRun], Sequence[Row]], Any]:
    """A column whose value is one for all rows of a run."""
    return lambda runs, rows: pa.concat_arrays([pa.repeat(pa.scalar(field(run), kind), len(run.rows)) for run in runs])


def _of_rows(place: int, kind: pa.DataType) -> Callable[[Sequence[RowRun], Sequence[Row]], Any]:
    return lambda runs, rows: pa.array([row[place] for row in rows], kind)


def _positions(runs: Sequence[RowRun], rows: Sequence[Row]) -> pa.Array:
    return pa.concat_arrays(
        [
            positions_of(
                run.ledger,
                array("q", [row[_ENTRY] for row in run.rows]),
                array("q", [-1 if (index := row[_INDEX]) is None else index for row in run.rows]),
            )
            for run in runs
        ]
    )


def positions_of(ledger: int, entries: Any, indexes: Any) -> pa.Array:
    """As ``codec.positions`` has them."""
    texts, ends = position_texts(ledger, entries, indexes)
    return pa.Array.from_buffers(pa.string(), len(entries), [None, pa.py_buffer(ends), pa.py_buffer(texts)])


def _values(runs: Sequence[RowRun], rows: Sequence[Row]) -> pa.Array:
    values = [row[_VALUE] for row in rows]
    data = [value for value in values if value is not None]
    if len(data) < len(values):
        return pa.array(values, pa.binary())
    offsets = array("i", accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))])


def _properties(runs: Sequence[RowRun], rows: Sequence[Row]) -> pa.Array:
    maps = [row[_PROPERTIES] for row in rows]
    offsets = array("i", accumulate(map(len, maps), initial=0))
    names = pa.array([name for properties in maps for name in properties], pa.string())
    values = pa.array([value for properties in maps for value in properties.values()], pa.string())
    return pa.MapArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)]), names, values
    )


def _unsigned(place: int) -> Callable[[Sequence[RowRun], Sequence[Row]], pa.Array]:
    """What Java sees of a number of 64 bits."""
    return lambda runs, rows: pa.array([row[place] for row in rows], pa.uint64()).view(pa.int64())


def _times(place: int) -> Callable[[Sequence[RowRun], Sequence[Row]], pa.Array]:
    ms = _unsigned(place)
    return lambda runs, rows: times_of(ms(runs, rows))


_COLUMNS: dict[str, Callable[[Sequence[RowRun], Sequence[Row]], Any]] = {
    "stream": _of_runs(lambda run: run.stream, pa.string()),
    "position": _positions,
    "key": _of_rows(_KEY, pa.binary()),
    "value": _values,
    "properties": _properties,
    "publishTime": _times(_PUBLISHED),
    "eventTime": _times(_HAPPENED),
    "producer": _of_rows(_PRODUCER, pa.string()),
    "sequence": _unsigned(_SEQUENCE),
    "ledger": _of_runs(lambda run: run.ledger, pa.int64()),
    "entry": _of_rows(_ENTRY, pa.int64()),
    "batchIndex": _of_rows(_INDEX, pa.int32()),
    HEADERS: lambda runs, rows: headers.headers_of(_properties(runs, rows)),
}
