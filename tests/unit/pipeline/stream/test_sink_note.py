"""What a checkpoint says of the streams that its query has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import CorruptRecord
from tallystick.pipeline.stream.sink_note import WRITTEN, has_written, note_written


def test_each_stream_is_noted_with_each_application(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    places = [("s", "a"), ("s", "b"), ("t", "a")]
    for number, place in enumerate(places):
        assert [has_written(checkpoint, *each) for each in places] == [before < number for before in range(3)]
        note_written(checkpoint, *place)
    assert all(has_written(checkpoint, *each) for each in places) and not has_written(checkpoint, "t", "b")


def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    (tmp_path / WRITTEN).write_text("[]")
    with pytest.raises(CorruptRecord, match="put its copy back"):
        has_written(str(tmp_path), "s", "a")
