"""The Spark data source ``tally-ledger``: the entries of ledgers as rows, read from the bookies directly.

The driver's planner process alone opens the metadata; a task gets all it needs in its partition (plan.py). Reading
never fences and never goes beyond the LAC. Entries come as Arrow batches, digests checked, dead bookies passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tallystick.pipeline.codes import coded
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerPartition, plan
from tallystick.pipeline.ledger.pushdown import push
from tallystick.pipeline.ledger.schema import COLUMNS
from tallystick.pipeline.notes import note
from tallystick.pipeline.source import BatchSource, TaskPartition, check_schema
from tallystick.pipeline.source_options import options_of_read, to_store

FORMAT = "tally-ledger"


class LedgerDataSource(BatchSource):
    instead_of_following = "Outside of Spark, LedgerReader.follow and tally ledger tail follow a ledger."
    instead_of_writing = "Write with tallystick.sync.connect(uri).create_ledger() in foreachPartition."

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with coded():
            columns = LedgerOptions.parse(options_of_read(self.options)).columns
            return COLUMNS.struct(columns, to_store(self.options))

    def reader(self, schema: StructType) -> LedgerSourceReader:
        with coded():
            options = options_of_read(self.options, schema)
            ledger_options = LedgerOptions.parse(options)
            check_schema(COLUMNS, ledger_options.columns if "columns" in options else None, schema)
            return LedgerSourceReader(ledger_options, schema)


class LedgerSourceReader(DataSourceReader):
    """Plans in the planner process, reads in the executors: a copy each, which share only the partitions."""

    def __init__(self, options: LedgerOptions, schema: StructType) -> None:
        self.options, self.row_schema = options, schema

    def partitions(self) -> list[TaskPartition[LedgerPartition]]:
        from tallystick.pipeline.ledger.survey import survey

        with coded(), _without_collections():
            ledger_survey = asyncio.run(survey(self.options, _report))
            partitions = plan(
                ledger_survey.extents, self.options.selection.entries, ledger_survey.addresses, self.options.limits
            )
        # Spark turns an empty list into one partition with the value None: an empty plan says the same in our words.
        return [TaskPartition(partition) for partition in partitions or [LedgerPartition((), {})]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from tallystick.bookkeeper.ledger.arrow import SCHEMA
        from tallystick.pipeline.ledger.read import read_partition

        assert isinstance(partition, TaskPartition)
        return read_partition(partition.partition, COLUMNS.arrow_schema(self.row_schema, SCHEMA))

    @property
    def pushFilters(self) -> _Push:
        return _Push(self)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """A plan is many objects that all live to its end: to look for garbage among them costs a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _report(count: int, total: int) -> None:
    note(FORMAT, f"looked up {count:,} of {total:,} ledgers")


class _Push:
    """Takes filters on ledger and entry ids into a reader's plan.

    Spark refuses a reader that overrides ``pushFilters`` while the session's setting forbids push-down, and knows one
    by the function behind the method. It calls the method only where the setting permits. So one reader serves both:
    the function shown is the one of the base class.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: LedgerSourceReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        options = self._reader.options
        selection, other_filters = push(options.selection, filters)
        self._reader.options = replace(options, selection=selection)
        return other_filters
