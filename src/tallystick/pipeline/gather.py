"""Columns of values that lie scattered in one buffer, as Arrow arrays: no Python object for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.codec.spans import joined_spans

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Spans(NamedTuple):
    """Where values are: value i is ``data[offsets[i] : offsets[i] + sizes[i]]``."""

    offsets: Numbers
    sizes: Numbers

    def at(self, rows: Any) -> Spans:
        """Returns those of some rows."""
        return Spans(self.offsets[rows], self.sizes[rows])

    def with_others(self, others: Spans) -> Spans:
        """Returns these and others behind them."""
        return Spans(np.concatenate([self.offsets, others.offsets]), np.concatenate([self.sizes, others.sizes]))


def joined(parts: Sequence[bytes | memoryview]) -> Bytes:
    """Returns the bytes of all parts."""
    return np.frombuffer(b"".join(parts), np.uint8)


def view_of(data: Bytes) -> memoryview:
    """Returns the bytes of an array, of which slices are no copies."""
    return memoryview(cast("bytes", data))  # numpy's arrays have a buffer, which their types do not say


def windows(data: Bytes, kind: str) -> npt.NDArray[Any]:
    """Returns a view of ``data`` that has at each place what begins there, as ``kind``: a numpy type of any width."""
    width = np.dtype(kind).itemsize
    return np.ndarray((max(0, len(data) - width + 1),), kind, data, 0, (1,))


def binary(data: Bytes, spans: Spans, valid: Flags | None = None) -> pa.Array:
    """Returns the values; null where they are not ``valid``."""
    offsets, sizes = spans
    if valid is not None:
        if valid.all():
            valid = None
        else:
            sizes = np.where(valid, sizes, 0)
    count = len(offsets)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    values = joined_spans(view_of(data), offsets, sizes)
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def texts(values: pa.Array) -> pa.Array:
    """Returns binary values as texts in UTF-8; what is none as Java would show it."""
    _, offsets, data = values.buffers()
    if data is None or not data.size:
        return values.view(pa.string())
    used = np.frombuffer(data, np.uint8)
    if used.max() >= 0x80 and not _are_texts(used, np.frombuffer(offsets, np.int32)[: len(values) + 1]):
        return pa.array(
            [None if each is None else each.decode(errors="replace") for each in values.to_pylist()], pa.string()
        )
    return values.view(pa.string())


def _are_texts(data: Bytes, offsets: npt.NDArray[np.int32]) -> bool:
    starts = offsets[:-1][offsets[:-1] < offsets[1:]]
    if ((data[starts] & 0xC0) == 0x80).any():  # one begins within a character
        return False
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def integers(values: npt.NDArray[Any], kind: pa.DataType, valid: Flags | None = None) -> pa.Array:
    """Returns whole numbers of 32 or 64 bits; null where they are not ``valid``."""
    native = np.ascontiguousarray(values, np.int32 if kind == pa.int32() else np.int64)
    bitmap = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(native), [bitmap, pa.py_buffer(native)])


def first_false(flags: Flags) -> int:
    """Returns the place of the first that is not so; their number if all are."""
    return len(flags) if flags.all() else int(np.argmin(flags))


def maps(offsets: Numbers, names: pa.Array, values: pa.Array) -> pa.MapArray:
    """Returns a map for each row: its pairs are from ``offsets[row]`` to before ``offsets[row + 1]``."""
    return pa.MapArray.from_arrays(integers(offsets, pa.int32()), names, values)
