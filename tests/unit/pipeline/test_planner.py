"""Spark's calls to a planner process, as it makes them when a query begins and when it is restarted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tallystick.errors import Unavailable
from tallystick.pipeline.lag import Lag
from tallystick.pipeline.planner import QueryPlanner
from tallystick.pipeline.trigger import TriggerLimits

LIMITS = TriggerLimits()


class Log:
    """A log with a length, and its decisions: a query begins at its end, or at its first item."""

    def __init__(self, length: int, *, may_begin_later: bool = True) -> None:
        self.length, self.may_begin_later = length, may_begin_later
        self.lag_error: Unavailable | None = None
        self.committed = -1

    async def connect(self) -> Log:
        return self

    async def close(self) -> None: ...

    async def freeze(self, client: Log) -> None: ...

    async def initial(self, client: Log) -> int:
        return self.length if self.may_begin_later else 0

    async def latest(self, client: Log, positions: int, limits: TriggerLimits) -> int:
        return self.length

    async def partitions(self, client: Log, starts: int, ends: int) -> list[int]:
        return list(range(starts, ends))

    async def commit(self, client: Log, positions: int) -> None:
        self.committed = positions

    def reached(self) -> int | None:
        return self.length

    async def lag(self, client: Log) -> Lag:
        if self.lag_error is not None:
            raise self.lag_error
        return Lag(3, 30, None)


Start = Callable[[Log], QueryPlanner[Any, Any, Any]]


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def connect(log: Log) -> QueryPlanner[Any, Any, Any]:
        started.append(QueryPlanner(log, log, lambda at: {"at": at}, lambda offset: offset["at"]))
        return started[-1]

    yield connect
    for each in started:
        each.close()


def test_what_comes_while_a_query_begins_at_the_end_is_read(start: Start) -> None:
    log = Log(90)
    planner = start(log)
    begin = planner.initial()
    log.length = 95
    end = planner.latest(begin, LIMITS)
    log.length = 98
    assert planner.partitions(planner.initial(), end) == [] and end == begin == {"at": 90}
    assert planner.partitions(end, planner.latest(end, LIMITS)) == list(range(90, 98))


def test_so_it_is_when_the_first_batch_is_planned_by_another_process(start: Start) -> None:
    log = Log(90)
    planner = start(log)
    end = planner.latest(planner.initial(), LIMITS)
    log.length = 98
    planner = start(log)
    assert planner.partitions(planner.initial(), end) == []
    assert planner.partitions(end, planner.latest(end, LIMITS)) == list(range(90, 98))


def test_a_restarted_query_whose_first_batch_is_at_the_end_reads_on_at_once(start: Start) -> None:
    log = Log(90)
    end = start(log).latest(start(log).initial(), LIMITS)
    planner = start(log)
    assert planner.partitions(planner.initial(), end) == []
    log.length = 91
    assert planner.latest(end, LIMITS) == {"at": 91}


def test_a_restarted_query_that_has_finished_its_batches_reads_on_before_it_plans_anything(start: Start) -> None:
    """Spark plans nothing anew then: where the query begins counts no more, or it would wait for ever."""
    log = Log(90)
    end = start(log).latest(start(log).initial(), LIMITS)
    log.length = 91
    assert start(log).latest(end, LIMITS) == {"at": 91}


def test_where_a_query_begins_is_no_first_batch_any_more_when_one_is_planned(start: Start) -> None:
    """Also one of a query whose start is an offset that it had returned before."""
    log = Log(90)
    planner = start(log)
    begin = planner.initial()
    planner.partitions({"at": 80}, begin)
    log.length = 95
    assert planner.latest(begin, LIMITS) == {"at": 95}


def test_a_query_that_begins_at_the_first_item_reads_with_its_first_batch(start: Start) -> None:
    planner = start(Log(3, may_begin_later=False))
    end = planner.latest(planner.initial(), LIMITS)
    assert planner.partitions(planner.initial(), end) == [0, 1, 2]


def test_the_newest_offset_has_the_lag_if_that_can_be_told(start: Start) -> None:
    log = Log(9)
    planner = start(log)
    assert planner.heads() == {"at": 9, "lag": {"rows": 3, "bytes": 30}}
    log.lag_error = Unavailable("bookies are away")
    assert planner.heads() == {"at": 9}


def test_what_spark_has_finished_is_told(start: Start) -> None:
    log = Log(9)
    start(log).commit({"at": 7})
    assert log.committed == 7
