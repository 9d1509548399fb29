"""A table that lacks what it had is not written on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import CheckpointLost, CorruptRecord, UsageError
from tallystick.pipeline.tables.last_commit import NOTE, LastCommit, note_commit, require_last_commit


def test_a_table_that_lacks_a_batch_that_it_had_is_refused(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    require_last_commit(checkpoint, LastCommit("delta:t", "a", -1))  # a query that begins
    for batch in (3, 4):
        note_commit(checkpoint, LastCommit("delta:t", "a", batch))
    for batch in (4, 5):  # a driver that died behind its commit noted nothing
        require_last_commit(checkpoint, LastCommit("delta:t", "a", batch))
    for batch in (-1, 3):
        with pytest.raises(CheckpointLost, match="batch 4 of application a was committed to this table, which lacks"):
            require_last_commit(checkpoint, LastCommit("delta:t", "a", batch))
    require_last_commit(checkpoint, LastCommit("delta:t", "b", -1))


def test_a_checkpoint_is_of_one_table_wherever_that_was_moved(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    note_commit(checkpoint, LastCommit("delta:t", "a", 4))
    require_last_commit(checkpoint, LastCommit("delta:moved", "a", 4))
    for application, batch in (("a", -1), ("a", 3), ("b", -1)):
        with pytest.raises(UsageError, match=r"of the table delta:t, .* the table delta:another would never get them"):
            require_last_commit(checkpoint, LastCommit("delta:another", application, batch))


@pytest.mark.parametrize("text", ["", "{}", '["t", "a"]', '["t", "a", "4"]'])
def test_a_damaged_note_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    with pytest.raises(CorruptRecord, match="put its copy back"):
        require_last_commit(str(tmp_path), LastCommit("t", "a", 4))
