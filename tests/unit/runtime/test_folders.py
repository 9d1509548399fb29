"""Folders and the ones above them outlive a power loss."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.errors import StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.folders import make_folder
from tallystick.sim.disk import SimDisk

FOLDER = "/srv/bookie/journal/tally"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("begun", ["/", "/srv/bookie", FOLDER])
def test_p1_what_lies_in_a_new_folder_outlives_a_power_loss(begun: str, seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.makedirs(begun)  # by a process that died before it synced anything
    make_folder(disk, FOLDER)
    write_atomic(disk, f"{FOLDER}/VERSION", b"4")
    disk.power_loss()
    assert disk.exists(f"{FOLDER}/VERSION")


def _break_sync_of(disk: SimDisk, folder: str) -> None:
    disk.fault = lambda operation, path: StorageError("broken") if (operation, path) == ("sync_dir", folder) else None


def test_a_folder_higher_up_need_not_be_readable() -> None:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/srv/data")
    disk.fault = lambda operation, path: StorageError("not ours") if (operation, path) == ("sync_dir", "/") else None
    make_folder(disk, "/srv/data/bookie/journal")
    disk.fault = lambda operation, path: (
        StorageError("broken") if (operation, path) == ("sync_dir", "/srv/data") else None
    )
    with pytest.raises(StorageError, match="broken"):
        make_folder(disk, "/srv/data/other/journal")


def test_the_folder_that_has_the_name_is_ours_to_sync_also_where_the_name_is_there() -> None:
    disk = SimDisk(random.Random(1))
    disk.makedirs(FOLDER)
    disk.fault = lambda operation, path: (
        StorageError("broken") if (operation, path) == ("sync_dir", "/srv/bookie/journal") else None
    )
    with pytest.raises(StorageError, match="broken"):
        make_folder(disk, FOLDER)


def test_on_a_real_disk(tmp_path: Path) -> None:
    make_folder(OsDisk(), str(tmp_path / "a" / "b"))
    make_folder(OsDisk(), str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
