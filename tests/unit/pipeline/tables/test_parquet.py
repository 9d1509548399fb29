"""A folder of Parquet is one query's: Spark's own sink would skip the batches of another one."""

import json
from pathlib import Path

import pytest

from tallystick.errors import CheckpointLost, CorruptRecord, UsageError
from tallystick.pipeline.tables.parquet import RECORD, ParquetFolder


@pytest.fixture
def folder(tmp_path: Path) -> ParquetFolder:
    return ParquetFolder(str(tmp_path / "table"))


def log(tmp_path: Path, *names: str) -> None:
    """As Spark has logged batches."""
    for name in names:
        path = tmp_path / "table" / "_spark_metadata" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def checkpoint(tmp_path: Path, name: str, batch: int) -> str:
    offsets = tmp_path / name / "offsets"
    offsets.mkdir(parents=True)
    (offsets / str(batch)).touch()
    return str(tmp_path / name)


def test_a_new_folder_is_taken_and_kept(folder: ParquetFolder, tmp_path: Path) -> None:
    folder.require("a", "c", None)
    folder.claim("a", "c", None)
    folder.require("a", "c", None)  # nothing is logged yet
    folder.claim("a", checkpoint(tmp_path, "c", 2), "q")
    log(tmp_path, "0", "1.compact", "2", ".2.crc")
    folder.require("a", str(tmp_path / "c"), "q")


@pytest.mark.parametrize("query", [None, "another"])
@pytest.mark.parametrize("logged", [("0", "1"), ("1.compact",)])
def test_another_query_is_refused(
    folder: ParquetFolder, tmp_path: Path, query: str | None, logged: tuple[str, ...]
) -> None:
    folder.claim("a", "c", "q")
    log(tmp_path, *logged)
    with pytest.raises(CheckpointLost, match="committed batch 1 of query q to this table"):
        folder.require("a", "c", query)


def test_a_checkpoint_from_an_older_copy_is_refused(folder: ParquetFolder, tmp_path: Path) -> None:
    folder.claim("a", "c", "q")
    log(tmp_path, "0", "1", "2")
    with pytest.raises(CheckpointLost, match="of an older checkpoint"):
        folder.require("a", checkpoint(tmp_path, "c", 1), "q")


@pytest.mark.parametrize("logged", [(), ("0", "1")])
def test_a_folder_that_lacks_batches_that_it_had_is_refused(
    folder: ParquetFolder, tmp_path: Path, logged: tuple[str, ...]
) -> None:
    mine = checkpoint(tmp_path, "c", 3)
    (tmp_path / "c" / "commits").mkdir()
    (tmp_path / "c" / "commits" / "2").touch()
    if logged:
        folder.claim("a", mine, "q")
        log(tmp_path, *logged)
    with pytest.raises(CheckpointLost, match="batch 2 of application a was committed to this table, which lacks it"):
        folder.require("a", mine, "q")
    folder.claim("a", mine, "q")
    log(tmp_path, "0", "1", "2")
    folder.require("a", mine, "q")


def test_a_driver_that_died_before_it_said_its_query_goes_on(folder: ParquetFolder, tmp_path: Path) -> None:
    mine = checkpoint(tmp_path, "c", 0)
    folder.claim("a", mine, None)
    log(tmp_path, "0")
    folder.require("a", mine, "q")
    with pytest.raises(CheckpointLost):
        folder.require("a", mine, None)
    with pytest.raises(CheckpointLost):
        folder.require("a", checkpoint(tmp_path, "d", 0), "q")


def test_the_folders_of_others_are_refused(folder: ParquetFolder, tmp_path: Path) -> None:
    log(tmp_path, "0")
    with pytest.raises(UsageError, match="another query of Spark writes this folder"):
        folder.require("a", "c", "q")
    folder.claim("a", "c", "q")
    with pytest.raises(UsageError, match="application a writes this folder"):
        folder.require("b", "c", "q")
    for text in ("no JSON", json.dumps({"application": 1})):
        (tmp_path / "table" / RECORD).write_text(text)
        with pytest.raises(CorruptRecord):
            folder.require("a", "c", "q")
