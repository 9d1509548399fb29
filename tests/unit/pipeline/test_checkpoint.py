import json
from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.checkpoint import batch_offsets, folder_uri, last_batch, offsets_digest, query_of


def test_a_checkpoint_tells_query_and_offsets(tmp_path: Path) -> None:
    folder = tmp_path / "a checkpoint"
    assert query_of(str(folder)) is None and last_batch(str(folder)) == -1
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "7"}))
    for number, time_ms, end in [(0, 1, 5), (1, 2, 6), (2, 3, 6)]:
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchTimestampMs":{time_ms}}}\n{{"v":1,"s":{end}}}')
    (folder / "offsets" / ".2.crc").touch()
    for place in (str(folder), folder_uri(str(folder)), f"file:{folder}"):
        assert query_of(place) == "7"
    assert last_batch(str(folder)) == 2
    assert batch_offsets(str(folder), 1) == batch_offsets(str(folder), 2) != batch_offsets(str(folder), 0)


def test_the_last_batch_is_the_highest_number(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert last_batch(str(tmp_path)) == -1
    for number in (8, 9, 10, 11):
        (tmp_path / "offsets" / str(number)).touch()
    assert last_batch(str(tmp_path)) == 11


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("mine")
    with pytest.raises(UsageError, match="no query: give another folder"):
        query_of(str(tmp_path))


def test_a_digest_is_of_the_offsets_alone() -> None:
    log = 'v1\n{"batchTimestampMs":%d}\n{"v":1}\n{"v":%d}'
    assert 0 <= offsets_digest(log % (1, 2)) == offsets_digest(log % (9, 2)) < 1 << 63
    assert offsets_digest(log % (1, 2)) != offsets_digest(log % (1, 3))
