from __future__ import annotations

import json
from typing import Any

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.offsets import content_of, require_json, stamped


def test_what_is_stored_comes_back() -> None:
    assert stamped("s", {"a": 1}) == {"v": 1, "s": {"a": 1}}
    assert content_of(stamped("s", {"a": 1}), "s", "tally-x", dict) == {"a": 1}


def test_an_offset_of_a_newer_version_is_refused_with_words() -> None:
    with pytest.raises(UsageError, match="offsets of a newer tallystick: run the query with that version") as raised:
        content_of({"v": 2, "s": {}, "x": 1}, "s", "tally-x", dict)
    assert raised.value.fields == {"offset_version": 2, "newest_known": 1}


@pytest.mark.parametrize(
    "offset",
    [None, [], {}, {"v": 1}, {"v": 0, "s": {}}, {"v": "1", "s": {}}, {"v": 1, "s": 5}, {"v": 1, "s": {}, "x": 1}],
)
def test_what_is_no_offset_is_refused(offset: Any) -> None:
    with pytest.raises(UsageError, match="the checkpoint has no offsets of tally-x"):
        content_of(offset, "s", "tally-x", dict)


def test_what_spark_cannot_decode_is_refused_with_words() -> None:
    with pytest.raises(json.JSONDecodeError) as undecoded:
        json.loads("rubbish")
    remedy = "no JSON: restore the newest files of its folder offsets from a copy, or run the query with a checkpoint"
    with pytest.raises(UsageError, match=remedy) as raised:
        require_json(undecoded.value, "tally-x")
    assert raised.value.fields == {"offset": "rubbish", "at": 0}


def test_another_end_of_a_reader_is_none() -> None:
    require_json(None, "tally-x")
    require_json(ValueError(), "tally-x")
    with pytest.raises(json.JSONDecodeError) as ours:
        exec("loads('{')", {"__name__": "tallystick.x", "loads": json.loads})
    require_json(ours.value, "tally-x")
