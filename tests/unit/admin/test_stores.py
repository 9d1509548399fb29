"""The check of a store directory from outside: sizes come from the files themselves, and nothing is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tallystick
from support.live_brokers import live_cluster
from tallystick.admin import stores
from tallystick.errors import NotFound, StorageError, UsageError
from tallystick.rocketmq.store.check import Problem
from tallystick.runtime.disk import OsDisk


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """Of a master that took 20 messages with keys and was stopped."""
    async with live_cluster(tmp_path, "broker-a") as cluster:
        async with tallystick.topics(cluster.name_server) as mq:
            for number in range(20):
                await mq.producer("P").send("T", b"body %d" % number, keys=f"key-{number}", tags="t")
        return cluster.store("broker-a")


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        os.path.join(root, name): (
            os.stat(os.path.join(root, name)).st_mtime_ns,
            os.path.getsize(os.path.join(root, name)),
        )
        for root, _, names in os.walk(folder)
        for name in names
    }


async def test_a_good_store_is_found_good_and_left_as_it_is(store: Path) -> None:
    before = contents(store)
    report = stores.check(str(store), {})
    assert (report.records, report.units, report.problems) == (20, 20, 0)
    assert report.entries >= 40  # a key of the client's and one of ours each
    assert contents(store) == before


async def test_sizes_are_those_of_the_files_unless_told(store: Path) -> None:
    found = stores.settings_of(OsDisk(), str(store), {})
    assert (found.commit_log_file_bytes, found.index_slots, found.index_entries) == (1048576, 100, 400)
    told = stores.settings_of(OsDisk(), str(store), {"maxHashSlotNum": "50", "maxIndexNum": "410"})
    assert (told.commit_log_file_bytes, told.index_slots, told.index_entries) == (1048576, 50, 410)
    with pytest.raises(UsageError, match="the check knows these settings: mappedFileSizeCommitLog"):
        stores.settings_of(OsDisk(), str(store), {"flushDiskType": "SYNC_FLUSH"})


async def test_a_flipped_bit_is_found(store: Path) -> None:
    log = store / "commitlog" / "00000000000000000000"
    data = bytearray(log.read_bytes())
    at = data.index(b"body 7")
    data[at] ^= 1
    log.write_bytes(data)
    report = stores.check(str(store), {})
    assert report.findings[0].problem is Problem.DAMAGED_RECORD
    assert report.findings[0].position < at


def test_a_folder_that_is_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no store of a broker here"):
        stores.check(str(tmp_path), {})
    with pytest.raises(NotFound, match="no such folder"):
        stores.check(str(tmp_path / "nowhere"), {})
    (tmp_path / "data" / "commitlog").mkdir(parents=True)
    with pytest.raises(NotFound, match=r"there is one in .*/data"):
        stores.check(str(tmp_path), {})


def test_a_store_that_may_not_be_looked_at_is_not_told_as_absent(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")  # whoever runs this: root may look everywhere
    with pytest.raises(StorageError, match="symbolic links"):
        stores.check(str(tmp_path / "loop"), {})
