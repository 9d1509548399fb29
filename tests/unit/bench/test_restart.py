"""The restart's bench does what it says, with few queues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench" / "restart.py"


def test_a_killed_store_is_opened_and_timed(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    sizes = ["--queues", "20", "--messages", "60", "--rounds", "2", "--load-seconds", "0.1"]
    subprocess.run([sys.executable, str(BENCH), *sizes, "--json", str(told)], check=True, capture_output=True)
    result = json.loads(told.read_text())
    assert (result["queues"], result["messages_each"], len(result["seconds_to_ready"])) == (20, 60, 2)


def test_nobody_goes_on_sending_when_it_is_told_to_stop(tmp_path: Path) -> None:
    """It would fill the disk. The pipe ends when its last writer, the bench or what it started, is gone."""
    sizes = ["--queues", "8", "--messages", "1000000000"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, str(BENCH), *sizes], env=environment, stderr=subprocess.PIPE, text=True
    ) as bench:
        assert bench.stderr is not None
        while not list(tmp_path.glob("tally-restart-*/commitlog/*")):
            assert bench.poll() is None, bench.stderr.read()
        bench.send_signal(signal.SIGTERM)
        assert "interrupted" in bench.stderr.read() and bench.wait() == 130
    assert not list(tmp_path.iterdir())
