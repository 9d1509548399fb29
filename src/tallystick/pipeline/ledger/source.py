"""The Spark data source ``tally-ledger``: the entries of ledgers as rows, read from the bookies directly.

The driver's planner process alone opens the metadata; a task gets all it needs in its partition (plan.py). Reading
never fences and never goes beyond the LAC. Entries come as Arrow batches, digests checked, dead bookies passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tallystick.pipeline.codes import coded
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import Partition, plan
from tallystick.pipeline.ledger.pushdown import push
from tallystick.pipeline.ledger.schema import COLUMNS
from tallystick.pipeline.source import TaskPartition, check_schema

FORMAT = "tally-ledger"


class LedgerDataSource(DataSource):
    """For sessions in which Spark pushes no filters down to Python, as is its default."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        with coded():
            return COLUMNS.ddl(LedgerOptions.parse(self.options).columns)

    def reader(self, schema: StructType) -> LedgerSourceReader:
        with coded():
            return LedgerSourceReader(self._wanted(schema), schema)

    def _wanted(self, schema: StructType) -> LedgerOptions:
        options = LedgerOptions.parse(self.options)
        check_schema(COLUMNS, options.columns if "columns" in self.options else None, schema)
        return options


class PushdownLedgerDataSource(LedgerDataSource):
    """For sessions with ``spark.sql.python.filterPushdown.enabled``; Spark refuses such a reader in other sessions."""

    def reader(self, schema: StructType) -> PushdownLedgerSourceReader:
        with coded():
            return PushdownLedgerSourceReader(self._wanted(schema), schema)


class LedgerSourceReader(DataSourceReader):
    """Plans in the planner process, reads in the executors: a copy each, which share only the partitions."""

    def __init__(self, options: LedgerOptions, schema: StructType) -> None:
        self.options, self.row_schema = options, schema

    def partitions(self) -> list[TaskPartition[Partition]]:
        from tallystick.pipeline.ledger.survey import survey

        with coded():
            found = asyncio.run(survey(self.options))
            planned = plan(found.extents, self.options.selection.entries, found.addresses, self.options.limits)
        # Spark turns an empty list into one partition with the value None: an empty plan says the same in our words.
        return [TaskPartition(partition) for partition in planned or [Partition((), {})]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from tallystick.bookkeeper.ledger.arrow import SCHEMA
        from tallystick.pipeline.ledger.read import read_partition

        assert isinstance(partition, TaskPartition)
        return read_partition(partition.partition, COLUMNS.arrow_schema(self.row_schema, SCHEMA))


class PushdownLedgerSourceReader(LedgerSourceReader):
    """Takes filters on ledger and entry ids into the plan."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        selection, left = push(self.options.selection, filters)
        self.options = replace(self.options, selection=selection)
        return left
