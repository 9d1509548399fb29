"""Entries as Arrow record batches: whole runs become buffers, with no Python object an entry but its view.

::

    ledger int64 | entry int64 | lac int64 | length int64 | payload binary       none is ever null

The only copy of a payload is the one from the responses' buffers, with headers between payloads, into the one buffer
that Arrow's binary layout needs. Import this module only where Arrow is wanted: it is slow to load.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.codec.reads import EntryRun, EvenEntries, PackedEntries
from tallystick.errors import UsageError
from tallystick.runtime.arguments import items, whole

Numbers = npt.NDArray[np.int64]

MAX_BATCH_BYTES = 1 << 30  # offsets of Arrow's binary type have 32 bits

SCHEMA = pa.schema(
    [
        pa.field("ledger", pa.int64(), nullable=False),
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("lac", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


def schema_of(columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of the chosen columns in their order; None means all. Raises UsageError for an unknown one."""
    unknown = [name for name in items(columns or (), "columns") if name not in SCHEMA.names]
    if unknown:
        raise UsageError(f"unknown columns {unknown}; known: {SCHEMA.names}")
    return SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])


@dataclass(frozen=True)
class Batching:
    """What a batch holds: columns in their order (None: all), at most so many rows, and so many bytes of payload.

    A single longer payload makes a batch of its own. Raises UsageError for limits and columns that make no sense.
    """

    columns: Sequence[str] | None = None
    rows: int = 4096
    bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        schema_of(self.columns)
        whole(self.rows, "batch_rows", least=1)
        whole(self.bytes, "batch_bytes", least=1, most=MAX_BATCH_BYTES)


async def batches_of(runs: AsyncGenerator[EntryRun, None], batching: Batching) -> AsyncGenerator[pa.RecordBatch, None]:
    """Cut runs, of whatever ledgers, into batches. Closes the runs at its end."""
    schema = schema_of(batching.columns)
    parts: list[EntryRun] = []
    rows = size = 0
    async with aclosing(runs):
        async for run in runs:
            ends = _ends_of(run.payloads)
            start = 0
            while start < len(run):
                stop, size = _fitting(ends, start, batching.rows - rows, size, batching.bytes, empty=not rows)
                if stop > start:
                    parts.append(run if (start, stop) == (0, len(run)) else _part(run, start, stop))
                    rows += stop - start
                    start = stop
                if start < len(run):
                    yield _batch(parts, schema)
                    parts, rows, size = [], 0, 0
    if parts:
        yield _batch(parts, schema)


def _fitting(ends: Numbers, start: int, rows: int, size: int, limit: int, *, empty: bool) -> tuple[int, int]:
    """Return where a batch that has ``size`` bytes already ends among payloads from ``start`` on, and its bytes."""
    fitting = int(np.searchsorted(ends, ends[start] + limit - size, side="right")) - 1
    stop = max(start + 1 if empty else start, min(fitting, start + rows, len(ends) - 1))
    return stop, size + int(ends[stop] - ends[start])


def _ends_of(payloads: Sequence[bytes | memoryview]) -> Numbers:
    """Return where payloads begin if one follows another, and behind them where the last one ends."""
    if isinstance(payloads, EvenEntries):
        return np.arange(len(payloads) + 1) * payloads.size
    if isinstance(payloads, PackedEntries):
        return np.frombuffer(payloads.offsets, np.int64)
    ends = np.zeros(len(payloads) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)), out=ends[1:])
    return ends


def _part(run: EntryRun, start: int, stop: int) -> EntryRun:
    cut = slice(start, stop)
    return EntryRun(run.ledger, run.first + start, run.lacs[cut], run.lengths[cut], run.payloads[cut])


def _batch(runs: list[EntryRun], schema: pa.Schema) -> pa.RecordBatch:
    rows = sum(map(len, runs))
    arrays = [_COLUMNS[name](runs, rows) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _int64(values: array[int] | Numbers, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(values)])


def _ledgers(runs: list[EntryRun], rows: int) -> pa.Array:
    values, count = np.empty(rows, np.int64), 0
    for run in runs:
        values[count : count + len(run)] = run.ledger
        count += len(run)
    return _int64(values, rows)


def _entries(runs: list[EntryRun], rows: int) -> pa.Array:
    values, count = np.arange(rows, dtype=np.int64), 0
    for run in runs:
        values[count : count + len(run)] += run.first - count
        count += len(run)
    return _int64(values, rows)


def _lacs(runs: list[EntryRun], rows: int) -> pa.Array:
    return _int64(_joined([run.lacs for run in runs]), rows)


def _lengths(runs: list[EntryRun], rows: int) -> pa.Array:
    return _int64(_joined([run.lengths for run in runs]), rows)


def _joined(columns: list[array[int]]) -> array[int]:
    values = array("q")
    for column in columns:
        values.extend(column)
    return values


def _payloads(runs: list[EntryRun], rows: int) -> pa.Array:
    offsets, count, end = np.zeros(rows + 1, np.int32), 0, 0
    for run in runs:
        ends = _ends_of(run.payloads)
        np.add(ends[1:], end - ends[0], out=offsets[count + 1 : count + len(ends)], casting="same_kind")
        count, end = count + len(run), end + run.payload_bytes
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(_bytes_of(runs))])


def _bytes_of(runs: list[EntryRun]) -> Any:
    """Return the payloads of all runs one after another."""
    if not any(isinstance(run.payloads, EvenEntries) for run in runs):
        parts = [_parts_of(run.payloads) for run in runs]
        return parts[0][0] if len(runs) == 1 == len(parts[0]) else b"".join(chain.from_iterable(parts))
    data, end = np.empty(sum(run.payload_bytes for run in runs), np.uint8), 0
    for run in runs:
        start, end = end, end + run.payload_bytes
        if isinstance(run.payloads, EvenEntries):
            data[start:end].reshape(len(run), run.payloads.size)[:] = _rows_of(run.payloads)
        else:
            data[start:end] = np.frombuffer(b"".join(_parts_of(run.payloads)), np.uint8)
    return data


def _parts_of(payloads: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    """Return the bytes of payloads in as few parts as there are."""
    return [payloads.bytes] if isinstance(payloads, PackedEntries) else payloads


def _rows_of(entries: EvenEntries) -> npt.NDArray[np.uint8]:
    """Return a view of entries, or of payloads, that has a row for each, without what is between them."""
    count, size, step = len(entries), entries.size, entries.gap + entries.size
    return np.ndarray((count, size), np.uint8, cast("bytes", entries.data), entries.gap, (step, 1))


_COLUMNS: dict[str, Callable[[list[EntryRun], int], Any]] = {
    "ledger": _ledgers,
    "entry": _entries,
    "lac": _lacs,
    "length": _lengths,
    "payload": _payloads,
}
