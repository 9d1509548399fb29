"""Properties of messages that have the same names, and values of the same sizes, as those of one producer mostly have:
taken apart by columns, with no step for each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.pipeline.gather import Bytes, integers

_LAST_SEPARATOR = 2  # 1 is behind a name, 2 behind a value
FEWEST = 32  # for fewer it is not worth while


@dataclass(frozen=True)
class _Pair:
    name: bytes
    value: slice  # its place in each text


class AlikeProperties:
    """``texts``: a row for each message, and a column for each byte of its properties as they are stored."""

    def __init__(self, texts: Bytes, pairs: Sequence[_Pair]) -> None:
        self._texts, self._pairs = texts, pairs

    @cached_property
    def maps(self) -> pa.MapArray:
        """Names and values of all messages."""
        count, places = len(self._texts), [np.arange(pair.value.start, pair.value.stop) for pair in self._pairs]
        text = np.frombuffer(b"".join(pair.name for pair in self._pairs), np.uint8)
        name_sizes = np.array([len(pair.name) for pair in self._pairs], np.int32)
        names = _strings(np.tile(text, count), np.tile(name_sizes, count))
        values = self._texts[:, np.concatenate(places)] if places else self._texts[:, :0]
        sizes = np.array([len(place) for place in places], np.int32)
        offsets = integers(np.arange(count + 1) * len(places), pa.int32())
        return pa.MapArray.from_arrays(offsets, names, _strings(values, np.tile(sizes, count)))

    def values(self, name: str) -> pa.Array:
        """The values of one property; null if no message has it."""
        count = len(self._texts)
        for pair in self._pairs:
            if pair.name == name.encode():
                values = self._texts[:, pair.value]
                return _strings(values, np.full(count, values.shape[1], np.int32))
        return pa.nulls(count, pa.string())


def _strings(data: Bytes, sizes: npt.NDArray[np.int32]) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.string(), len(sizes), buffers)


def alike_properties(texts: Sequence[bytes]) -> AlikeProperties | None:
    """Returns the properties of messages; None if they are not alike, or not in ASCII."""
    if len(texts) < FEWEST or not texts[0] or set(map(len, texts)) != {len(texts[0])}:
        return None
    return alike_rows(np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), len(texts[0])))


def alike_rows(rows: Bytes) -> AlikeProperties | None:
    """As ``alike_properties``, of texts that are rows."""
    if len(rows) < FEWEST or not rows.size or rows.max() >= 0x80:
        return None
    is_constant = (rows == rows[0]).all(axis=0)
    if (rows[:, ~is_constant] <= _LAST_SEPARATOR).any():  # what parts names and values is at other places in some
        return None
    pairs: list[_Pair] = []
    start = 0
    for part in rows[0].tobytes().split(b"\x02"):
        name, _, value = part.partition(b"\x01")
        value_at = start + len(name) + 1
        if not is_constant[start : start + len(name)].all():
            return None
        if name and value:  # else it counts for nothing
            pairs.append(_Pair(name, slice(value_at, value_at + len(value))))
        start += len(part) + 1
    return AlikeProperties(rows, pairs)
