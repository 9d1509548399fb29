"""The programs of docs/spark.md run as they stand, one behind the other, on a development cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick import sync

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STREAM, TOPIC = "demo/flights/persistent/all", "Orders"


def test_what_the_page_shows_works(
    bk: sync.BookKeeper, uri: str, name_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bk.open_stream(STREAM) as stream:
        stream.append_batch([b"a", b"b"])
        stream.roll_over()
    with sync.topics(name_server) as mq:
        mq.producer("docs").send(TOPIC, b"order", tags="new")
    programs = PROGRAM.findall(PAGE.read_text(encoding="utf-8"))
    assert len(programs) >= 2
    check = "print('rows', spark.read.parquet('flights-table').count(), spark.read.parquet('flights').count() >= 1)"
    monkeypatch.setenv("TALLY_URI", uri)
    monkeypatch.setenv("TALLY_NAMESRV", name_server)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*programs, check])],
        capture_output=True, text=True, timeout=380, cwd=tmp_path,
    )  # fmt: skip
    assert "rows 2 True" in done.stdout, done.stderr[-3000:]
