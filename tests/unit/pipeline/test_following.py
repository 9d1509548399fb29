"""What becomes of Spark's calls to a reader of a streaming query, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from tallystick.errors import NoSuchStream, UsageError
from tallystick.pipeline.following import FollowingReader
from tallystick.pipeline.offsets import Offset
from tallystick.pipeline.source import TaskPartition
from tallystick.pipeline.trigger import TriggerLimits

LIMITS = TriggerLimits(items=7, bytes=500)


class Planner:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.error: Exception | None = None

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    def initial(self) -> Offset:
        self._called("initial")
        return {"at": 3}

    def freeze(self) -> None:
        self._called("freeze")

    def latest(self, start: Offset, limits: TriggerLimits) -> Offset:
        self._called("latest", start, limits)
        return {"at": 9}

    def heads(self) -> Offset | None:
        return {"at": 11}

    def partitions(self, start: Offset, end: Offset) -> list[str]:
        self._called("partitions", start, end)
        return ["a", "b"]

    def commit(self, end: Offset) -> None:
        self._called("commit", end)

    def close(self) -> None:
        self._called("close")


@dataclass(frozen=True)
class Options:
    trigger: TriggerLimits = LIMITS


class Reader(FollowingReader[Options]):
    format_name = "tally-x"

    def __init__(self, trigger: TriggerLimits = LIMITS) -> None:
        super().__init__(Options(trigger), StructType())
        self.planners: list[Planner] = []

    def connect(self) -> Any:
        self.planners.append(Planner())
        return self.planners[-1]

    def rows(self, partition: Any) -> Iterator[Any]:
        return iter([partition, partition])

    @property
    def calls(self) -> list[Any]:
        """What its one planner was asked."""
        [planner] = self.planners
        return planner.calls


def test_each_call_goes_to_one_planner_as_it_is() -> None:
    reader = Reader()
    assert reader.initialOffset() == {"at": 3}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"at": 3}, ReadMaxRows(7)) == {"at": 9}
    assert [part.partition for part in reader.partitions({"at": 3}, {"at": 9})] == ["a", "b"]
    assert reader.reportLatestOffset() == {"at": 11}
    reader.commit({"at": 9})
    reader.stop()
    assert reader.calls == [
        ("initial",),
        ("freeze",),
        ("latest", {"at": 3}, LIMITS),
        ("partitions", {"at": 3}, {"at": 9}),
        ("commit", {"at": 9}),
        ("close",),
    ]


def test_limits_count_unless_spark_wants_all() -> None:
    """As with Trigger.Once: all that there is belongs to the one batch."""
    reader = Reader()
    reader.latestOffset({"at": 3}, ReadAllAvailable())
    assert reader.calls == [("latest", {"at": 3}, TriggerLimits())]


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (TriggerLimits(), ReadAllAvailable()),
        (TriggerLimits(items=7), ReadMaxRows(7)),
        (TriggerLimits(bytes=500), ReadMaxBytes(500)),
        (TriggerLimits(min_items=5), ReadMinRows(5)),
        (TriggerLimits(items=7, bytes=500, min_items=5), ReadMaxRows(7)),
    ],
)
def test_spark_is_told_of_a_limit_wherever_there_is_one(limits: TriggerLimits, limit: ReadLimit) -> None:
    """Else it would ask for all, and none of them counted."""
    assert Reader(limits).getDefaultReadLimit() == limit


def test_a_task_reads_its_partition_and_plans_nothing() -> None:
    reader = Reader()
    assert list(reader.read(TaskPartition("b"))) == ["b", "b"] and not reader.planners
    reader.stop()
    assert not reader.planners


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.latestOffset({}, ReadAllAvailable()),
        lambda reader: reader.partitions({}, {}),
        lambda reader: reader.commit({}),
    ],
)
def test_errors_have_their_code_in_the_text_that_spark_hands_on(call: Callable[[Reader], object]) -> None:
    reader = Reader()
    cast("Any", reader.planner).error = NoSuchStream("gone")
    with pytest.raises(NoSuchStream, match=r"^\[TALLY-NO-SUCH-STREAM\] gone"):
        call(reader)


def test_a_reader_that_stops_by_an_offset_that_is_no_json_says_so() -> None:
    reader = Reader()
    with pytest.raises(UsageError, match=r"\[TALLY-USAGE-ERROR\] the checkpoint has an offset of tally-x that is no J"):
        try:
            json.loads("rubbish")
        finally:
            reader.stop()
