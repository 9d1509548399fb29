"""What is wrong on the command line is said before Spark is started, which takes seconds."""

from __future__ import annotations

import logging
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.cli import main, spark
from tallystick.pipeline.tables.writer import IngestProgress

STREAM = "t/n/persistent/s"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([STREAM, "flights"], "delta:PATH"),
        ([STREAM, "csv:flights"], "delta:PATH"),
        ([STREAM, "delta:"], "delta:PATH"),
        ([STREAM, "delta:flights", "--checkpoint", ""], "checkpoint is the folder"),
        ([STREAM, "delta:flights", "--checkpoint", __file__], "checkpoint is a folder, and this is a file"),
        ([STREAM, "delta:flights", "--catalog", "uri=sqlite:///c.db"], "catalog is of tables of Iceberg"),
        ([STREAM, "delta:flights", "--application", "a/b"], "application"),
        ([STREAM, "parquet:flights"], "needs a value_schema"),
        (["flights", "delta:flights"], "of a topic give --format tally-topic; the name of a stream is"),
        (["t/n/persistent/..", "delta:flights"], "the name of a stream is"),
        ([STREAM, "delta:flights", "--option", "startingOffset=latest"], "did you mean startingOffsets"),
        ([STREAM, "delta:flights", "--option", "endingOffsets=latest"], "endingOffsets is an option of spark.read"),
        ([STREAM, "delta:flights", "--uri", ""], "the option uri is empty"),
        ([STREAM, "delta:flights", "--option", "Path=t/n/persistent/other"], "leave out --option Path"),
        ([STREAM, "delta:flights", "--uri", "sqlite:///y", "--option", "uri=sqlite:///x"], "leave out --option uri"),
        (["Orders", "delta:flights", "--format", "tally-topic", "--option", "groupid="], "groupId is empty"),
    ],
)
def test_no_session_is_made_for_wrong_arguments(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLY_URI", "sqlite:///x")
    monkeypatch.setenv("TALLY_NAMESRV", "127.0.0.1:9")
    monkeypatch.setattr(spark, "_session", lambda *given: pytest.fail("Spark is started"))
    checkpoint = [] if "--checkpoint" in arguments else ["--checkpoint", "c"]
    assert main(["spark", "ingest", *arguments, *checkpoint]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint and complaint.count("\n") == 1


def interrupted() -> Any:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:  # as py4j does
        logging.exception("KeyboardInterrupt while sending command.")
        raise


def test_an_interrupt_while_a_session_is_made_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TALLY_URI", "sqlite:///x")
    monkeypatch.setattr(spark, "_session", lambda *given: interrupted())
    assert main(["spark", "ingest", STREAM, "delta:flights", "--checkpoint", "c"]) == 130
    assert not caplog.records and capsys.readouterr() == ("", "")


@pytest.mark.parametrize("error", [RuntimeError("the JVM is gone"), ConnectionRefusedError()])
def test_sigterm_that_ended_spark_too_is_no_bug(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raises(error: BaseException) -> Any:
        raise error

    started = SimpleNamespace(
        application="a",
        target="delta:flights",
        progress=IngestProgress(),
        wait=lambda timeout_s: interrupted(),
        stop=lambda: raises(error),
    )
    monkeypatch.setenv("TALLY_URI", "sqlite:///x")
    monkeypatch.setattr(spark, "_session", lambda *given: None)
    monkeypatch.setattr("tallystick.spark.ingest", lambda *given, **more: started)
    assert main(["spark", "ingest", STREAM, "delta:flights", "--checkpoint", "c"]) == 130
    printed = capsys.readouterr()
    assert not caplog.records
    assert printed.out == "delta:flights: 0 rows in 0 batches\n" and printed.err == ""


def test_an_interrupt_asks_spark_nothing_on_the_connection_that_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, cancelled = signal.getsignal(signal.SIGINT), []

    def session(*given: object) -> None:
        signal.signal(signal.SIGINT, lambda number, frame: cancelled.append(number))  # as PySpark has one that cancels

    def follow(timeout_s: float) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    started = SimpleNamespace(
        application="a", target="delta:flights", progress=IngestProgress(), wait=follow, stop=lambda: None
    )
    monkeypatch.setenv("TALLY_URI", "sqlite:///x")
    monkeypatch.setattr(spark, "_session", session)
    monkeypatch.setattr("tallystick.spark.ingest", lambda *given, **more: started)
    try:
        assert main(["spark", "ingest", STREAM, "delta:flights", "--checkpoint", "c"]) == 130
        assert not cancelled and signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().out == "delta:flights: 0 rows in 0 batches\n"
