"""The same source on a real standalone cluster: executors are other processes, started by workers."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.listening import open_to_others
from support.spark_cluster import running
from tallystick import sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("summarise.py")
Write = Callable[..., int]


def test_a_cluster_of_processes_reads_the_same_rows(
    bk: sync.BookKeeper, uri: str, write: Write, tmp_path: Path
) -> None:
    payloads = [b"flight %d " % number * (number % 9) for number in range(2000)]
    ledgers = [write(payloads, ensemble=3, write_quorum=3), write(payloads[:500], ensemble=3, write_quorum=2)]
    expected = hashlib.sha256()
    for ledger, count in zip(ledgers, (2000, 500), strict=True):
        length = 0
        for entry, payload in enumerate(payloads[:count]):
            length += len(payload)
            expected.update(f"{ledger}:{entry}:{length}:".encode() + payload)
    with running(tmp_path) as cluster:
        assert [open_to_others(pid) for pid in cluster.pids] == [[], [], []]
        program = [sys.executable, str(PROGRAM), cluster.master, uri, ",".join(map(str, ledgers))]
        done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 2500 and found["partitions"] == 4 and found["executors"] == 2
    assert found["sha256"] == expected.hexdigest()
