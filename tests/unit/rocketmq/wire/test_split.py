"""Long tables in parts: nothing is lost, nothing is made up, and no part is long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.split import split

TEXT = st.text("az0,:{}[]\"\\'é ", max_size=6)
SCALAR = st.one_of(st.integers(-9, 99), TEXT, st.booleans(), st.none())
ENTRY = st.one_of(SCALAR, st.lists(SCALAR, max_size=3), st.dictionaries(st.integers(-1, 9).map(str), st.integers(0, 9)))
TABLE = st.dictionaries(TEXT, ENTRY, max_size=5)
WHOLE = st.dictionaries(TEXT, st.one_of(SCALAR, st.lists(ENTRY, max_size=3), TABLE), max_size=5)


def joined(parts: list[dict[str, Any]], depth: int = 2) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in parts:
        merge(whole, part, depth)
    return whole


def merge(whole: dict[str, Any], part: dict[str, Any], depth: int) -> None:
    for name, value in part.items():
        if depth > 1 and isinstance(value, dict) and isinstance(whole.get(name), dict):
            merge(whole[name], value, depth - 1)
        else:
            whole[name] = value


@given(
    st.one_of(WHOLE, st.dictionaries(TEXT, WHOLE, max_size=3)),
    st.integers(0, 40),
    st.sampled_from([None, 1]),
    st.integers(1, 4),
)
def test_the_parts_together_are_the_whole(whole: dict[str, Any], size: int, indent: int | None, depth: int) -> None:
    text = json.dumps(whole, indent=indent, ensure_ascii=False).encode()
    assert joined([json.loads(part) for part in split(text, size, depth=depth)], depth) == whole


def test_a_part_has_its_size_and_one_entry_more() -> None:
    table = {"offsetTable": {f"topic{number}@group": dict.fromkeys(map(str, range(8)), 1) for number in range(100)}}
    parts = list(split(json.dumps(table).encode(), 500))
    assert len(parts) > 10
    assert max(map(len, parts)) < 500 + 120
    assert joined([json.loads(part) for part in parts]) == table


def test_the_originals_dialect_is_split_too() -> None:
    """Bare numbers and objects as keys, strings in single quotes, commas at the end."""
    text = b"""{"a":{'x,}y':{0:1,1:2,},"z":{-3:4}, }, "b":{{"queueId":0}:{"t":1},{"queueId":1}:{"t":2}},}"""
    parts = [dialect.read(part) for part in split(text, 1)]
    assert parts == [
        {"a": {"x,}y": {"0": 1, "1": 2}}},
        {"a": {"z": {"-3": 4}}},
        {"a": {}},
        {"b": {(("queueId", 0),): {"t": 1}}},
        {"b": {(("queueId", 1),): {"t": 2}}},
        {},
    ]


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":{', b'{"a":{}}}', b'{"a":{}} x', b'{"a":"', b'{"a":[}'])
def test_a_text_that_is_no_table_is_refused(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        for part in split(text, 1):
            dialect.read(part)


def test_an_entry_has_a_bound_where_one_is_given() -> None:
    text = b'{"a":{"x":[%s],"y":1}}' % b",".join([b"1"] * 500)
    assert len(list(split(text, 1))) == 2
    with pytest.raises(RemoteProtocolError, match="at most 900 bytes"):
        list(split(text, 1, most=900))


A = b"a" * 1_000_000


@pytest.mark.parametrize(
    "text", [b'{"' + b'\\"' * 1_000_000, b"{" + A, b"{" + A + b'"' + A], ids=["quotes", "as", "one"]
)
def test_what_never_ends_is_refused_in_one_look(text: bytes) -> None:
    """A search that begins anew at each byte would not end within the suite's limit."""
    with pytest.raises(RemoteProtocolError, match="do not match"):
        list(split(text, 1))
