"""The broker sets that a query may have sent to, in its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import CorruptRecord, Unavailable
from tallystick.pipeline.topic.sink_sets import SETS, add_sets


def test_what_was_noted_stays_noted_topic_by_topic(tmp_path: Path) -> None:
    folder = str(tmp_path / "new" / "checkpoint")
    assert add_sets(folder, "T", ["b", "a"]) == ("a", "b")
    assert add_sets(folder, "T", ["c"]) == ("a", "b", "c")
    assert add_sets(folder, "U", ["d"]) == ("d",)
    assert add_sets(f"file:{folder}", "T", []) == ("a", "b", "c")
    assert [each.name for each in Path(folder).iterdir()] == [SETS]


@pytest.mark.parametrize("text", ["", "[]", '{"T": "a"}', '{"T": [1]}', "\x00"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / SETS).write_text(text)
    with pytest.raises(CorruptRecord, match="put its copy back"):
        add_sets(str(tmp_path), "T", ["a"])


def test_a_checkpoint_that_is_here_and_takes_no_note_ends_the_query_before_it_sends(tmp_path: Path) -> None:
    """A full disk, say: a set that is not noted, and is away when the batch comes again, would be passed over."""
    (tmp_path / f"{SETS}.new").mkdir()  # in its way
    with pytest.raises(OSError):  # whatever the system says
        add_sets(str(tmp_path), "T", ["a"])  # a folder of that name which is no checkpoint: that one only the JVM sees
    (tmp_path / "metadata").write_text('{"id": "q"}')
    with pytest.raises(Unavailable, match=r"cannot be written.*nothing is sent"):
        add_sets(str(tmp_path), "T", ["a"])


def test_a_file_system_that_python_does_not_know_is_said(tmp_path: Path) -> None:
    with pytest.raises((OSError, ValueError, NotImplementedError)):
        add_sets("nosuch://host/checkpoint", "T", ["a"])
