"""The programs of docs/spark.md and docs/tables.md run as they stand, one behind the other, on a small cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick import sync

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STREAM, TOPIC = "demo/flights/persistent/all", "Orders"


def test_what_the_pages_show_works(
    bk: sync.BookKeeper, uri: str, name_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bk.open_stream(STREAM) as stream:
        stream.append_batch([b"a", b"b"])
        stream.roll_over()
    with sync.topics(name_server) as mq:
        mq.producer("docs").send(TOPIC, b"order", tags="new")
    programs = [
        each for page in ("spark", "tables") for each in PROGRAM.findall((DOCS / f"{page}.md").read_text("utf-8"))
    ]
    assert len(programs) >= 4
    check = (
        "print('rows', spark.read.parquet('flights-table').count(), spark.read.parquet('flights').count() >= 1, "
        "spark.read.parquet('entries-table').count() >= 1)"
    )
    monkeypatch.setenv("TALLY_URI", uri)
    monkeypatch.setenv("TALLY_NAMESRV", name_server)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*programs, check])],
        capture_output=True, text=True, timeout=380, cwd=tmp_path,
    )  # fmt: skip
    assert "rows 2 True True" in done.stdout, done.stderr[-3000:]
    assert "IngestProgress(batch=0, batches=1, skipped=0, rows=2, dead_letters=2, files=" in done.stdout
