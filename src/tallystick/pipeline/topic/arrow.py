"""Messages as Arrow record batches: whole pulls become buffers; properties are taken apart by Arrow, not one by one.

The only copy of a body is the one from the responses' buffers, where other fields lie between bodies, into the one
buffer that Arrow's binary layout needs; a compressed one is inflated on the way.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.pipeline import headers
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS, HEADERS
from tallystick.pipeline.gather import Bytes, integers
from tallystick.pipeline.times import TIME, times_of
from tallystick.pipeline.topic.alike import AlikeProperties, alike_properties, alike_rows
from tallystick.pipeline.topic.brokers import Pulled
from tallystick.pipeline.topic.uniform import UniformRun
from tallystick.rocketmq.wire.message_ids import decode_host, encode_message_id
from tallystick.rocketmq.wire.record import COMPRESSED, KEYS, TAGS, UNIQ_KEY, sent_body

TRANSACTIONAL = "TRAN_MSG"  # a property: "true" for a message of a transaction
_TYPES = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "body": pa.binary(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "bornTimestamp": TIME,
    "storeTimestamp": TIME,
    "msgId": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "physicalOffset": pa.int64(),
    "transactionId": pa.string(),
    **headers.TYPES,
}
SCHEMA = pa.schema(list(_TYPES.items()))


async def batches_of(
    pulls: AsyncGenerator[Pulled, None], columns: Sequence[str], *, decode: bool
) -> AsyncGenerator[list[pa.Array], None]:
    """The chosen columns of some rows at a time: as many pulls as make a batch. Closes the pulls at its end."""
    parts: list[Pulled] = []
    rows = size = 0
    async with aclosing(pulls):
        async for pulled in pulls:
            parts.append(pulled)
            rows, size = rows + len(pulled.run), size + pulled.size
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield arrays_of(parts, columns, decode=decode)
                parts, rows, size = [], 0, 0
    if parts:
        yield arrays_of(parts, columns, decode=decode)


def arrays_of(parts: Sequence[Pulled], columns: Sequence[str], *, decode: bool) -> list[pa.Array]:
    """One array for each column, over all rows. Raises as ``sent_body``."""
    rows = _Rows(parts, decode)
    return [_COLUMNS[name](rows) for name in columns]


class _Rows:
    """The rows of one batch."""

    def __init__(self, parts: Sequence[Pulled], decode: bool) -> None:
        self.parts, self.decode = parts, decode
        self.count = sum(len(part.run) for part in parts)

    def column(self, field: str) -> npt.NDArray[Any]:
        """A field of all records; numbers are as they came, in any order of their bytes."""
        columns = [part.column(field) for part in self.parts]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def hosts(self, field: str) -> list[bytes]:
        hosts = self.column(field)
        if hosts.dtype.kind == "V" and (hosts == hosts[0]).all():
            return [bytes(hosts[0])] * self.count
        return [bytes(host) for host in hosts.tolist()]

    @property
    def bodies(self) -> list[bytes | memoryview]:
        return [body for part in self.parts for body in _each(part.run.bodies)]

    @property
    def _property_texts(self) -> list[bytes]:
        return [bytes(text) for part in self.parts for text in _each(part.run.properties)]

    @cached_property
    def _alike(self) -> AlikeProperties | None:
        uniform = [part.run.properties for part in self.parts if isinstance(part.run, UniformRun)]
        if len(uniform) == len(self.parts) and len({rows.shape[1] for rows in uniform}) == 1:
            return alike_rows(uniform[0] if len(uniform) == 1 else np.concatenate(uniform))
        return alike_properties(self._property_texts)

    @cached_property
    def properties(self) -> pa.MapArray:
        """Names and values, without the pairs that count for nothing (``decode_properties``)."""
        if self._alike is not None:
            return self._alike.maps
        property_texts = self._property_texts
        try:
            b"".join(property_texts).decode()
        except UnicodeDecodeError:
            property_texts = [str(each, "utf-8", "replace").encode() for each in property_texts]
        lists = pc.split_pattern(_binary(property_texts).view(pa.string()), "\x02")
        pairs, offsets = lists.flatten(), lists.offsets
        mask = pc.match_substring(pairs, "\x01")
        pairs, offsets = pairs.filter(mask), _after(mask, offsets)
        halves = pc.split_pattern(pairs, "\x01", max_splits=1)
        names, values = pc.list_element(halves, 0), pc.list_element(halves, 1)
        mask = pc.and_(pc.not_equal(names, ""), pc.not_equal(values, ""))
        return pa.MapArray.from_arrays(_after(mask, offsets), names.filter(mask), values.filter(mask))

    def property(self, name: str) -> pa.Array:
        """The values of one property; null where a message does not have it."""
        if self._alike is not None:
            return self._alike.values(name)
        mask = pc.equal(self.properties.keys, name)
        indices = pc.index_in(self._numbers, value_set=self._row_of_pair.filter(mask))
        return self.properties.items.filter(mask).take(indices)

    @cached_property
    def _row_of_pair(self) -> pa.Array:
        return pc.list_parent_indices(pa.ListArray.from_arrays(self.properties.offsets, self.properties.keys))

    @cached_property
    def _numbers(self) -> pa.Array:
        return pa.array(range(self.count), pa.int64())


def _after(mask: pa.Array, offsets: pa.Array) -> pa.Array:
    """Offsets into the items that a filter leaves."""
    item_counts = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(mask.cast(pa.int32()))])
    return item_counts.take(offsets)


def _binary(values: Sequence[bytes | memoryview]) -> pa.Array:
    offsets = array("i", accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def _bodies(rows: _Rows) -> pa.Array:
    flags = rows.column("sys_flags")
    if rows.decode and (flags & COMPRESSED).any():
        each = zip(rows.bodies, flags.tolist(), rows.column("physical_offsets").tolist(), strict=True)
        return _binary([sent_body(bytes(body), flag, offset) for body, flag, offset in each])
    uniform = [part.run.bodies for part in rows.parts if isinstance(part.run, UniformRun)]
    if len(uniform) < len(rows.parts):
        return _binary(rows.bodies)
    offsets = np.zeros(rows.count + 1, np.int32)
    np.cumsum(np.repeat([run.shape[1] for run in uniform], [len(run) for run in uniform]), out=offsets[1:])
    data, end = np.empty(offsets[-1], np.uint8), 0
    for run in uniform:
        start, end = end, end + run.size
        data[start:end].reshape(run.shape)[:] = run
    return pa.Array.from_buffers(pa.binary(), rows.count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _each(values: Sequence[bytes | memoryview] | Bytes) -> Sequence[bytes | memoryview]:
    return [row.tobytes() for row in values] if isinstance(values, np.ndarray) else values


def _of_the_queue(value: Callable[[Pulled], object], kind: pa.DataType) -> Callable[[_Rows], pa.Array]:
    """A column that is the same for all messages of a pull."""

    def column(rows: _Rows) -> pa.Array:
        counts = [(each, sum(len(part.run) for part in parts)) for each, parts in groupby(rows.parts, key=value)]
        return pa.concat_arrays([pa.repeat(pa.scalar(each, kind), count) for each, count in counts])

    return column


def _integers(field: str, kind: pa.DataType) -> Callable[[_Rows], pa.Array]:
    return lambda rows: integers(rows.column(field), kind)


def _times(field: str) -> Callable[[_Rows], pa.Array]:
    ms = _integers(field, pa.int64())
    return lambda rows: times_of(ms(rows))


def _hosts(field: str) -> Callable[[_Rows], pa.Array]:
    def column(rows: _Rows) -> pa.Array:
        hosts = rows.hosts(field)
        if hosts.count(hosts[0]) == rows.count:
            return pa.repeat(pa.scalar(_host(hosts[0])), rows.count)
        return pa.array(map(_host, hosts), pa.string(), size=rows.count)

    return column


@lru_cache(maxsize=4096)
def _host(host: bytes) -> str:
    address, port = decode_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _message_ids(rows: _Rows) -> pa.Array:
    unique = rows.property(UNIQ_KEY)
    if not unique.null_count:
        return unique
    places = zip(rows.hosts("store_hosts"), rows.column("physical_offsets").tolist(), strict=True)
    return pc.coalesce(unique, pa.array([encode_message_id(host, offset) for host, offset in places], pa.string()))


def _transaction_ids(rows: _Rows) -> pa.Array:
    transactional = pc.equal(rows.property(TRANSACTIONAL), "true")
    return pc.if_else(pc.fill_null(transactional, False), rows.property(UNIQ_KEY), pa.scalar(None, pa.string()))


_COLUMNS: dict[str, Callable[[_Rows], Any]] = {
    "topic": _of_the_queue(lambda part: part.queue.topic, pa.string()),
    "brokerName": _of_the_queue(lambda part: part.queue.broker, pa.string()),
    "queueId": _of_the_queue(lambda part: part.queue.queue_id, pa.int32()),
    "queueOffset": _integers("queue_offsets", pa.int64()),
    "body": _bodies,
    "keys": lambda rows: rows.property(KEYS),
    "tags": lambda rows: rows.property(TAGS),
    "properties": lambda rows: rows.properties,
    "bornTimestamp": _times("born_timestamps"),
    "storeTimestamp": _times("store_timestamps"),
    "msgId": _message_ids,
    "flag": _integers("flags", pa.int32()),
    "sysFlag": _integers("sys_flags", pa.int32()),
    "reconsumeTimes": _integers("reconsume_times", pa.int32()),
    "bornHost": _hosts("born_hosts"),
    "storeHost": _hosts("store_hosts"),
    "physicalOffset": _integers("physical_offsets", pa.int64()),
    "transactionId": _transaction_ids,
    HEADERS: lambda rows: headers.headers_of(rows.properties),
}
