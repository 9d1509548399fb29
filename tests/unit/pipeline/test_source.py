"""What becomes of Spark's calls to a data source and to the reader of a batch, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tallystick.errors import NoSuchStream, UsageError
from tallystick.pipeline.columns import Columns
from tallystick.pipeline.source import BatchReader, ReadOnlySource, TaskPartition, require_append
from tallystick.pipeline.source_options import METADATA_KEY

COLUMNS = Columns({"entry": "bigint", "payload": "binary"})
OF_A_TABLE = {"provider": "tally-x", "option.uri": "X", "option.columns": "payload"}


@dataclass(frozen=True)
class Options:
    columns: tuple[str, ...]
    given: Mapping[str, str]
    follows: bool | None


class Source(ReadOnlySource[Options]):
    columns = COLUMNS
    instead_of_writing = "Write it elsewhere."

    @classmethod
    def name(cls) -> str:
        return "tally-x"

    def parse(self, options: Mapping[str, str], *, follows: bool | None) -> Options:
        if "nonsense" in options:
            raise UsageError("an option means nothing")
        names = COLUMNS.parse(options["columns"]) if "columns" in options else COLUMNS.names
        return Options(names, dict(options), follows)

    def batch_reader(self, options: Options, schema: StructType) -> Any:
        return "batch", options, schema

    def following_reader(self, options: Options, schema: StructType) -> Any:
        return "following", options, schema


class Reader(BatchReader[Any, str]):
    def __init__(self, *planned: str) -> None:
        super().__init__(None, StructType())
        self.planned = planned

    def plan(self) -> Sequence[str]:
        if "gone" in self.planned:
            raise NoSuchStream("gone")
        return self.planned

    def nothing(self) -> str:
        return "nothing"

    def rows(self, partition: str) -> Iterator[Any]:
        return iter([partition])


def source(**options: str) -> Any:
    return Source(options)


def test_a_query_has_the_columns_that_its_options_say() -> None:
    assert source().schema() == COLUMNS.struct(("entry", "payload"))
    assert source(columns="payload").schema() == COLUMNS.struct(("payload",))
    assert source(columns="payload").schema().fields[0].metadata == {}


def test_a_table_has_its_options_and_a_query_of_it_may_have_others() -> None:
    stored = Source(OF_A_TABLE).schema()
    assert stored.names == ["payload"] and METADATA_KEY in stored.fields[0].metadata
    kind, options, schema = source(uri="Y").reader(stored)
    assert (kind, options.given, schema) == ("batch", {"uri": "Y", "columns": "payload"}, stored)


def test_readers_are_of_batches_or_of_streaming_queries() -> None:
    schema = source().schema()
    kind, options, _ = source().reader(schema)
    assert (kind, options.follows) == ("batch", False)
    kind, options, _ = source().streamReader(schema)
    assert (kind, options.follows) == ("following", True)


def test_a_schema_and_the_option_that_differ_are_refused() -> None:
    only_payload = COLUMNS.struct(("payload",))
    source(columns="payload").reader(only_payload)
    source().reader(only_payload)
    with pytest.raises(UsageError, match=r"^\[TALLY-USAGE-ERROR\] the option columns and the schema differ"):
        source(columns="entry,payload").reader(only_payload)
    with pytest.raises(UsageError, match=r"^\[TALLY-USAGE-ERROR\] an option means nothing"):
        source(nonsense="1").schema()


def test_what_is_only_read_is_not_written() -> None:
    for write in (source().writer, source().streamWriter):
        with pytest.raises(
            UsageError, match=r"\[TALLY-USAGE-ERROR\] tally-x cannot be written by Spark. Write it else"
        ):
            write(StructType(), False)


def test_what_is_written_is_not_replaced() -> None:
    require_append("a stream", overwrite=False)
    with pytest.raises(UsageError, match="a stream is only ever appended to"):
        require_append("a stream", overwrite=True)


def test_each_part_of_a_plan_is_a_task_and_a_plan_without_any_is_one_that_has_nothing() -> None:
    reader = Reader("a", "b")
    assert [part.partition for part in reader.partitions()] == ["a", "b"]
    assert [part.partition for part in Reader().partitions()] == ["nothing"]
    assert list(reader.read(TaskPartition("b"))) == ["b"]
    with pytest.raises(NoSuchStream, match=r"^\[TALLY-NO-SUCH-STREAM\] gone"):
        Reader("gone").partitions()
