from __future__ import annotations

import json
from typing import Any

import pytest

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import UsageError
from tallystick.pipeline.stream.offsets import from_offset, to_offset

A, B = "t/n/persistent/a", "t/n/persistent/b"


def test_equal_positions_have_equal_texts() -> None:
    offset = to_offset({B: Position(7, 3), A: EARLIEST})
    assert json.dumps(offset) == json.dumps(to_offset({A: EARLIEST, B: Position(7, 3)}))
    assert json.dumps(offset) == '{"v": 1, "s": {"t/n/persistent/a": [-1, -1], "t/n/persistent/b": [7, 3]}}'
    assert from_offset(json.loads(json.dumps(offset))) == {A: EARLIEST, B: Position(7, 3)}
    assert from_offset(to_offset({})) == {}


@pytest.mark.parametrize(
    ("place", "most"),
    [
        (EARLIEST, 16),
        (Position(12, 0), 16),
        (Position(4_294_967_296, 49_999), 25),
        (Position((1 << 63) - 1, 10**11 - 1), 40),  # a hundred billion entries: no ledger has as many
    ],
)
def test_a_stream_takes_40_bytes_at_most_beside_its_name(place: Position, most: int) -> None:
    names = [f"t/n/persistent/{number:04}" for number in range(1_000)]
    text = json.dumps(to_offset(dict.fromkeys(names, place)))  # as PySpark writes it
    assert len(text) - len(json.dumps(to_offset({}))) - sum(map(len, names)) <= most * len(names)
    assert set(from_offset(json.loads(text)).values()) == {place}


def test_an_offset_of_a_newer_version_is_refused_with_words() -> None:
    with pytest.raises(UsageError, match="offsets of a newer tallystick: run the query with that version") as raised:
        from_offset({"v": 2, "s": {}, "x": 1})
    assert raised.value.fields == {"offset_version": 2, "newest_known": 1}


@pytest.mark.parametrize(
    "offset",
    [None, [], {}, {"v": 1}, {"v": 0, "s": {}}, {"v": "1", "s": {}}, {"v": 1, "s": {}, "q": {}}, {"v": 1, "s": []},
     {"v": 1, "s": {A: [7]}}, {"v": 1, "s": {A: [7, "3"]}}, {"v": 1, "s": {A: [7, True]}}, {"v": 1, "s": {A: [7, -1]}},
     {"v": 1, "s": {A: [-1, 0]}}, {"v": 1, "s": {A: "7:3"}}],
)  # fmt: skip
def test_what_is_no_offset_is_refused(offset: Any) -> None:
    with pytest.raises(UsageError, match="the checkpoint has no offsets of tally-stream"):
        from_offset(offset)
