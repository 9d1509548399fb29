from __future__ import annotations

from typing import Any

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.offsets import content_of, stamped


def test_what_is_stored_comes_back() -> None:
    assert stamped("s", {"a": 1}) == {"v": 1, "s": {"a": 1}}
    assert content_of(stamped("s", {"a": 1}), "s", "tally-x", dict) == {"a": 1}


def test_an_offset_of_a_newer_version_is_refused_with_words() -> None:
    with pytest.raises(UsageError, match="offsets of a newer tallystick: run the query with that version") as raised:
        content_of({"v": 2, "s": {}, "x": 1}, "s", "tally-x", dict)
    assert raised.value.fields == {"offset_version": 2, "newest_known": 1}


@pytest.mark.parametrize("offset", [None, [], {}, {"v": 1}, {"v": 0, "s": {}}, {"v": "1", "s": {}}, {"v": 1, "s": 5}])
def test_what_is_no_offset_is_refused(offset: Any) -> None:
    with pytest.raises(UsageError, match="the checkpoint has no offsets of tally-x"):
        content_of(offset, "s", "tally-x", dict)
