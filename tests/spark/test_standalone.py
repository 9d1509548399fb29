"""The same source on a real standalone cluster: executors are other processes, started by workers."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

HERE = Path(__file__).parent
Write = Callable[..., int]


def test_a_cluster_of_processes_reads_the_same_rows(
    bk: sync.BookKeeper, uri: str, write: Write, tmp_path: Path
) -> None:
    specification = importlib.util.spec_from_file_location("standalone", HERE / "standalone.py")
    assert specification is not None and specification.loader is not None
    standalone = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(standalone)
    payloads = [b"flight %d " % number * (number % 9) for number in range(2000)]
    ledgers = [write(payloads, ensemble=3, write_quorum=3), write(payloads[:500], ensemble=3, write_quorum=2)]
    expected = hashlib.sha256()
    for ledger, count in zip(ledgers, (2000, 500), strict=True):
        length = 0
        for entry, payload in enumerate(payloads[:count]):
            length += len(payload)
            expected.update(f"{ledger}:{entry}:{length}:".encode() + payload)
    with standalone.running(tmp_path) as master:
        program = [sys.executable, str(HERE / "summarise.py"), master, uri, ",".join(map(str, ledgers))]
        done = subprocess.run(program, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 2500 and found["partitions"] == 4 and found["executors"] == 2
    assert found["sha256"] == expected.hexdigest()
