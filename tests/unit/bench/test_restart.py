"""The restart's bench does what it says, with few queues."""

from __future__ import annotations

import json
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
