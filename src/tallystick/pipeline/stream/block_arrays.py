"""The messages of a block as Arrow arrays: of each column that a query wants one."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tallystick.pipeline import headers
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS, HEADERS
from tallystick.pipeline.gather import Numbers, binary, integers, maps, texts
from tallystick.pipeline.stream.block import MOST_BYTES, MOST_ROWS, Block
from tallystick.pipeline.stream.rows import positions_of
from tallystick.pipeline.times import times_of


class BlockRun(NamedTuple):
    """A block of one ledger of a stream."""

    stream: str
    ledger: int
    block: Block

    @property
    def row_count(self) -> int:
        """How many messages these are."""
        return len(self.block)

    @property
    def size(self) -> int:
        """The bytes of the values."""
        return self.block.size

    def arrays(self, columns: Sequence[str]) -> list[pa.Array]:
        """Returns one array for each column, over all messages."""
        return [_OF_RUN[name](self) if name in _OF_RUN else _COLUMNS[name](self.block) for name in columns]

    def parts(self) -> Iterator[BlockRun]:
        """Yields the run in pieces that are no more than a batch."""
        sizes, first, size = self.block.messages.values.sizes.tolist(), 0, 0
        if len(sizes) <= MOST_ROWS and self.size <= MOST_BYTES:
            yield self
            return
        for at, value_bytes in enumerate(sizes):
            if at - first == BATCH_ROWS or (at > first and size + value_bytes > BATCH_BYTES):
                yield self._replace(block=self.block.part(first, at))
                first, size = at, 0
            size += value_bytes
        yield self._replace(block=self.block.part(first, len(sizes)))


def _entries(block: Block) -> pa.Array:
    return integers(block.messages.entries + block.first, pa.int64())


def _indexes(block: Block) -> pa.Array:
    return integers(block.messages.indexes, pa.int32(), block.messages.indexes >= 0)


def _positions(run: BlockRun) -> pa.Array:
    messages = run.block.messages
    return positions_of(run.ledger, messages.entries + run.block.first, messages.indexes)


def _keys(block: Block) -> pa.Array:
    messages = block.messages
    stored = binary(block.data, messages.keys, messages.has_key)
    keys = texts(stored).view(pa.binary())
    if not (messages.is_base64 & messages.has_key).any():
        return keys
    pairs = zip(keys.to_pylist(), messages.is_base64.tolist(), strict=True)
    return pa.array([_decoded(key) if key is not None and is_base64 else key for key, is_base64 in pairs], pa.binary())


def _decoded(key: bytes) -> bytes:
    try:
        return base64.b64decode(key.decode(), validate=True)
    except (binascii.Error, ValueError):  # then it is the text
        return key


def _properties(block: Block) -> pa.MapArray:
    pairs = block.messages.properties
    offsets = np.zeros(len(block) + 1, np.int64)
    np.cumsum(np.bincount(pairs.rows, minlength=len(block)), out=offsets[1:])
    names, values = texts(binary(block.data, pairs.names)), texts(binary(block.data, pairs.values))
    if _has_repeated(pairs.rows, names):
        return _without_repeated(len(block), pairs.rows.tolist(), names.to_pylist(), values.to_pylist())
    return maps(offsets, names, values)


def _has_repeated(rows: Numbers, names: pa.Array) -> bool:
    """Returns whether a message has a name twice."""
    if len(rows) < 2:  # as where messages have none: what follows takes as long as all else of such a column
        return False
    different = names.dictionary_encode()
    places = np.sort(rows * len(different.dictionary) + different.indices.to_numpy())
    return bool((places[1:] == places[:-1]).any())


def _without_repeated(count: int, rows: list[int], names: list[str], values: list[str]) -> pa.MapArray:
    """Returns the properties; of two of a message with one name the last."""
    properties: list[dict[str, str]] = [{} for _ in range(count)]
    for row, name, value in zip(rows, names, values, strict=True):
        properties[row][name] = value
    return pa.array([list(each.items()) for each in properties], pa.map_(pa.string(), pa.string()))


def _happened(block: Block) -> pa.Array:
    return times_of(integers(block.messages.happened, pa.int64(), block.messages.has_happened))


_OF_RUN: dict[str, Callable[[BlockRun], pa.Array]] = {
    "stream": lambda run: pa.repeat(pa.scalar(run.stream), run.row_count),
    "ledger": lambda run: pa.repeat(pa.scalar(run.ledger, pa.int64()), run.row_count),
    "position": lambda run: _positions(run),
}
_COLUMNS: dict[str, Callable[[Block], pa.Array]] = {
    "key": _keys,
    "value": lambda block: binary(block.data, block.messages.values, block.messages.has_value),
    "properties": _properties,
    "publishTime": lambda block: times_of(integers(block.published[block.messages.entries], pa.int64())),
    "eventTime": _happened,
    "producer": lambda block: texts(binary(block.data, block.producers.at(block.messages.entries))),
    "sequence": lambda block: integers(block.messages.sequences, pa.int64()),
    "entry": _entries,
    "batchIndex": _indexes,
    HEADERS: lambda block: headers.headers_of(_properties(block)),
}
