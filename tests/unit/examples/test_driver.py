"""Spark's driver dies in the middle of a batch, not somewhere, and what hangs is ended with a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from examples.flights import driver
from examples.flights.driver import SparkDriver
from examples.flights.processes import Patience


class FakeProcess:
    """Takes orders. ``at_kill`` is done while it is killed."""

    made: list[FakeProcess]

    def __init__(self, folder: Path) -> None:
        self.log = folder / "spark.log"
        self.orders: list[dict[str, object]] = []
        self.is_killed = False
        self.made.append(self)

    def order(self, order: dict[str, object]) -> None:
        self.orders.append(order)

    def check(self) -> None:
        pass

    def kill(self) -> None:
        self.is_killed = True
        late = self.log.parent / "late"
        if late.exists():  # a batch that was done before the kill came
            late.rename(self.log.parent / "checkpoint" / "commits" / late.read_text())

    def __exit__(self, *exception: object) -> None:
        pass


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    FakeProcess.made = []
    monkeypatch.setattr(driver, "SparkProcess", FakeProcess)
    monkeypatch.setattr(driver, "INTO_BATCH_S", 0.0)
    for name in ("offsets", "commits"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
    return tmp_path / "checkpoint"


def test_a_driver_dies_in_a_batch_and_goes_on_with_its_query(checkpoint: Path) -> None:
    spark = SparkDriver(checkpoint.parent)
    spark.follow(checkpoint, do="derive")
    for name in ("offsets/0", "commits/0", "commits/.0.crc"):
        (checkpoint / name).touch()
    assert spark.kill_in_batch(lambda: (checkpoint / "offsets" / "1").touch()) == 1
    spark.restart()
    first, second = FakeProcess.made
    assert first.is_killed and second.orders == first.orders == [{"do": "derive", "checkpoint": str(checkpoint)}]


def test_a_batch_that_was_done_at_the_kill_is_not_told_of(checkpoint: Path) -> None:
    spark = SparkDriver(checkpoint.parent)
    spark.follow(checkpoint, do="derive")
    (checkpoint / "commits" / "0").touch()
    (checkpoint / "offsets" / "1").touch()
    (checkpoint.parent / "late").write_text("1")
    assert spark.kill_in_batch(lambda: (checkpoint / "offsets" / "2").touch()) == 2
    assert [process.is_killed for process in FakeProcess.made] == [True, True]


def test_a_query_without_a_batch_is_given_up(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "BATCH_S", 0.0)
    spark = SparkDriver(checkpoint.parent)
    with pytest.raises(SystemExit, match=r"did not get on for 0 s.*spark\.log|spark\.log.*did not get on for 0 s"):
        spark.kill_in_batch(lambda: None)


@pytest.mark.real_time
def test_a_spark_that_ends_early_is_told_of_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.SparkProcess, "module", "json.tool")  # which finds no file of that name
    with SparkDriver(tmp_path) as spark, pytest.raises(SystemExit, match=r"failed|ended.*exit code.*spark\.log"):
        spark.order(do="catch up")
        spark.wait()


@pytest.mark.real_time
def test_a_spark_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ORDER_S", 0.1)
    monkeypatch.setattr(driver.SparkProcess, "module", "json.tool")
    os.mkfifo(tmp_path / "spark")  # it waits for somebody to write there
    with SparkDriver(tmp_path) as spark, pytest.raises(SystemExit, match=r"more than 0 s for an order.*spark\.log"):
        spark.order(do="catch up")
        spark.wait()


def test_patience_lasts_as_long_as_something_changes() -> None:
    patience = Patience("the writer", seconds=0.0)
    for state in range(3):
        patience.tell(state)
    with pytest.raises(SystemExit, match="the writer did not get on"):
        for _ in range(100):
            patience.tell(2)
