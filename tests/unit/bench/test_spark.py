from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from machine import cpu_seconds

import spark
from spark import CEILING, PAYLOAD_BYTES, Round
from tallystick.pipeline.columns import BATCH_BYTES


def test_the_table_has_medians_and_the_cpu_beside_the_ceiling() -> None:
    results = {
        "source": [Round(1e6, 2.0, 0.5), Round(3e6, 9.0, 0.7), Round(2e6, 3.0, 0.6)],
        CEILING: [Round(4e6, 1.5, 0.0)],
    }
    _, _, source, ceiling = spark.table(results).splitlines()
    assert source == "| source | 2000 | 2048 | 3.07 | 3.00 | 0.60 | 0.50 | 0.42 |"
    assert ceiling == f"| {CEILING} | 4000 | 4096 | 1.54 | 1.50 | 0.00 | 1.00 | 1.00 |"


def test_the_ceiling_gives_as_many_rows_as_it_says() -> None:
    batches = list(spark.ready_batches(2500, spark.ledger_batch())([pa.record_batch({"id": [1]})]))
    assert sum(batch.num_rows for batch in batches) == 2500
    assert max(batch.num_rows for batch in batches) * PAYLOAD_BYTES == BATCH_BYTES
    assert batches[0].schema.names == ["ledger", "entry", "lac", "length", "payload"]


def test_workloads_take_turns_and_the_first_turn_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def run(frame: str, rows: int, bookies: list[int]) -> Round:
        turns.append(frame)
        return Round(len(turns), 1.0, 1.0)

    monkeypatch.setattr(spark, "run", run)
    frames: Any = {"a": "A", "b": "B"}  # nobody looks at them
    results = spark.measure(frames, 10, 2, [])
    assert turns == ["A", "B"] * 3
    assert [one.rows_per_s for one in results["a"]] == [3, 5]


def test_cpu_is_that_of_the_tree_without_what_is_left_out() -> None:
    burn = "import os, time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        whole, without = spark.tree_cpu_seconds(os.getpid(), []), spark.tree_cpu_seconds(os.getpid(), [child.pid])
        assert whole - without >= 0.15
    finally:
        child.communicate(b"\n")


def test_cpu_of_spark_workers_that_have_ended_counts() -> None:
    """Spark's daemon sets SIGCHLD to be ignored, and would forget it."""
    work = """
import os, signal, time
import counted_daemon
counted_daemon.set_handler(signal.SIGCHLD, signal.SIG_IGN)
if not (worker := os.fork()):
    while time.process_time() < 0.2: pass
    os._exit(0)
while os.path.exists(f"/proc/{worker}"): time.sleep(0.01)
print(flush=True)
input()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(spark.__file__).parent), *sys.path])}
    daemon = subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    try:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        assert spark.tree_cpu_seconds(daemon.pid, []) - cpu_seconds(daemon.pid) >= 0.15
    finally:
        daemon.communicate(b"\n")
