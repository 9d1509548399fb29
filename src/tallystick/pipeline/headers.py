"""The column ``headers``: properties in the form that Kafka's source gives, for queries that were written for it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.pipeline.columns import HEADERS

TYPES = {HEADERS: pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))}


def headers_of(properties: pa.MapArray) -> pa.ListArray:
    """Returns names and values; null, as there, where a message has none."""
    pairs = pa.StructArray.from_arrays([properties.keys, properties.items.cast(pa.binary())], ["key", "value"])
    lists = pa.ListArray.from_arrays(properties.offsets, pairs).cast(TYPES[HEADERS])
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), pa.scalar(None, lists.type), lists)
