"""The Spark data source ``tally-ledger``: the entries of ledgers as rows, read from the bookies directly.

The driver's planner process alone opens the metadata; a task gets all it needs in its partition (plan.py). Reading
never fences and never goes beyond the LAC. Entries come as Arrow batches, digests checked, dead bookies passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from tallystick.pipeline.following import FollowingReader
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerPartition, plan
from tallystick.pipeline.ledger.pushdown import push
from tallystick.pipeline.ledger.schema import COLUMNS, FORMAT
from tallystick.pipeline.notes import note
from tallystick.pipeline.source import BatchReader, ReadOnlySource

if TYPE_CHECKING:
    from tallystick.pipeline.planner import QueryPlanner


class LedgerDataSource(ReadOnlySource[LedgerOptions]):
    columns = COLUMNS
    instead_of_writing = "Write with tallystick.sync.connect(uri).create_ledger() in foreachPartition."

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def parse(self, options: Mapping[str, str], *, follows: bool | None) -> LedgerOptions:
        return LedgerOptions.parse(options, follows=follows)

    def batch_reader(self, options: LedgerOptions, schema: StructType) -> LedgerSourceReader:
        options.warn()
        return LedgerSourceReader(options, schema)

    def following_reader(self, options: LedgerOptions, schema: StructType) -> LedgerFollowingReader:
        options.warn()
        return LedgerFollowingReader(options, schema)


class LedgerSourceReader(BatchReader[LedgerOptions, LedgerPartition]):
    def plan(self) -> Sequence[LedgerPartition]:
        from tallystick.pipeline.ledger.survey import survey

        with _without_collections():
            ledger_survey = asyncio.run(survey(self.options, _report))
            return plan(
                ledger_survey.extents, self.options.selection.entries, ledger_survey.addresses, self.options.limits
            )

    def nothing(self) -> LedgerPartition:
        return LedgerPartition((), {})

    def rows(self, partition: LedgerPartition) -> Iterator[Any]:
        return _rows(partition, self.row_schema, self.options)

    @property
    def pushFilters(self) -> _Push:
        return _Push(self)


class LedgerFollowingReader(FollowingReader[LedgerOptions]):
    format_name = FORMAT

    def connect(self) -> QueryPlanner[Any, Any, LedgerPartition]:
        from tallystick.pipeline.ledger.planner import planner

        return planner(self.options)

    def rows(self, partition: LedgerPartition) -> Iterator[Any]:
        return _rows(partition, self.row_schema, self.options)


def _rows(partition: LedgerPartition, schema: StructType, options: LedgerOptions) -> Iterator[Any]:
    from tallystick.bookkeeper.ledger.arrow import SCHEMA
    from tallystick.pipeline.ledger.read import read_partition

    return read_partition(partition, COLUMNS.arrow_schema(schema, SCHEMA), options)


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
