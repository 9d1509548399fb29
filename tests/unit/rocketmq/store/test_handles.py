"""The bound of open files: which are closed, what in use means, and a store of many queues in a process with few."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick.rocketmq.store.handles import Handles
from tallystick.sim.disk import SimDisk


@dataclass
class Owner:
    view: memoryview | None = None


@pytest.fixture
def handles() -> Handles:
    disk = SimDisk(random.Random(1))
    for number in range(20):
        disk.open(f"/{number}", create=True).write([bytes([number])], 0)
    return Handles(disk, 4)


def test_the_file_unused_for_longest_is_closed_and_opens_again(handles: Handles) -> None:
    files = [handles.open(f"/{number}") for number in range(20)]
    assert handles.count == 0
    assert [file.read(1, 0) for file in files] == [bytes([number]) for number in range(20)]
    assert [file.path for file in files if file.file is not None] == ["/16", "/17", "/18", "/19"]
    files[16].read(1, 0)
    files[0].write([b"x"], 0)
    assert [file.path for file in files if file.file is not None] == ["/0", "/16", "/18", "/19"]
    assert files[0].read(1, 0) == b"x"


def test_a_file_in_use_is_not_closed(handles: Handles) -> None:
    used, *others = [handles.open(f"/{number}") for number in range(20)]
    file = handles.acquire(used)
    for other in others:
        other.read(1, 0)
    used.close()
    assert used.file is file
    handles.release(used)
    assert used.file is None


def test_views_share_the_bound_and_those_held_elsewhere_stay_good(handles: Handles) -> None:
    owners = [Owner() for _ in range(20)]
    held = [handles.map(owner, handles.open(f"/{number}")) for number, owner in enumerate(owners)]
    assert handles.count <= 4
    assert [bytes(view) for view in held] == [bytes([number]) for number in range(20)]
    assert owners[0].view is None
    last = next(owner for owner in owners if owner.view is not None)
    handles.unmap(last)
    assert last.view is None


_MANY_QUEUES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from support.message_stores import SMALL, put_request
from support.stores import SteppingClock
from dataclasses import replace
from tallystick.rocketmq.store.store import MessageStore
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events

for life in range(2):
    settings = replace(SMALL, max_open_files=64, disk_delete_ratio=100, disk_clean_ratio=100, disk_refuse_ratio=100)
    store = MessageStore.open(OsDisk(), sys.argv[1], settings, SteppingClock(), Events())
    for number in range(1000):
        put, = store.put([put_request(b"body %d" % number, topic=f"Topic{number}")])
        assert put.queue_offset == life, put
        store.reput()
    store.flush()
    store.maintain(0)
    assert store.first == 0 and store.end > 4096 * 25
    for number in range(1000):
        for offset in range(life + 1):
            found = store.get(f"Topic{number}", 0, offset, 1, 1 << 20)
            assert b"body %d" % number in bytes(found.buffers[0])
    store.close()
"""


def test_a_thousand_queues_and_a_log_of_many_files_in_a_process_with_few_handles(tmp_path: Path) -> None:
    tests = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _MANY_QUEUES, str(tmp_path / "store")], cwd=tests, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
