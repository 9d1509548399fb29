"""RocketMQ's JSON, read tolerantly, written as fastjson writes it, and bounded."""

from __future__ import annotations

import enum
import json
import re
from contextlib import suppress
from typing import Any, get_origin

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import OffsetTable, TopicTable
from tallystick.rocketmq.wire.values import DataVersion, Heartbeat, MessageQueue, Perm, TopicConfig

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def without_nulls(value: Any) -> Any:
    """What the dialect makes of a value: a null member is an absent one."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=60)
@given(VALUES)
def test_strict_json_means_what_the_standard_library_reads(value: Any) -> None:
    assert dialect.read(json.dumps(value)) == without_nulls(value)
    assert dialect.read(json.dumps(value, ensure_ascii=False, indent=1)) == without_nulls(value)


@settings(max_examples=60)
@given(VALUES)
def test_what_is_written_is_strict_json_when_its_keys_are_strings(value: Any) -> None:
    text = dialect.write(value).decode()
    assert json.loads(text) == dialect.read(text) == without_nulls(value)
    assert json.loads(dialect.write_strict(value)) == value


OFFSETS = st.dictionaries(TEXTS, st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=4)


@settings(max_examples=60)
@given(OFFSETS, st.booleans())
@example({'a","b":{1:2},{3:': {4: 5}, '\\"{7:': {8: 9}}, False)
def test_integer_keys_are_bare_or_quoted_and_read_either_way(offsets: dict[str, dict[int, int]], quoted: bool) -> None:
    table = OffsetTable(DataVersion(), offsets)
    text = dialect.write(table, quoted=quoted)
    assert dialect.read_as(text, OffsetTable) == table
    lines = b"".join(dialect.write_lines(table))
    assert dialect.read_as(lines, OffsetTable) == table
    json.loads(lines)
    plain = {topic: {str(queue): offset for queue, offset in queues.items()} for topic, queues in offsets.items()}
    assert dialect.read(text)["offsetTable"] == plain


@settings(max_examples=60)
@given(st.binary(max_size=100))
def test_random_bytes_are_values_or_refused(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        assert isinstance(dialect.read(data), str | int | float | list | dict | tuple | None)
    with suppress(RemoteProtocolError):
        assert isinstance(dialect.read_as(data, Heartbeat), Heartbeat)


@settings(max_examples=60)
@given(st.text("{}[]:,\"'\\ 01-.eunltrfas\n", max_size=60))
def test_random_almost_json_is_a_value_or_refused(text: str) -> None:
    with suppress(RemoteProtocolError):
        value = dialect.read(text)
        assert dialect.read(dialect.write(value)) == without_nulls(value)
    with suppress(RemoteProtocolError):
        assert isinstance(dialect.read_as(text, TopicTable), TopicTable)


@settings(max_examples=60)
@given(VALUES, st.sampled_from([Heartbeat, TopicTable, OffsetTable, dict[str, str], list[MessageQueue]]))
def test_any_json_is_the_wanted_type_or_refused(value: Any, kind: Any) -> None:
    with suppress(RemoteProtocolError):
        taken = dialect.read_as(json.dumps(value), kind)
        assert isinstance(taken, get_origin(kind) or kind)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:5,-1:6}", {"0": 5, "-1": 6}),
        ("{'a':'it\\'s \"x\"'}", {"a": 'it\'s "x"'}),
        ("[1,2,]", [1, 2]),
        ('{"a":1,}', {"a": 1}),
        ("{}", {}),
        ("[]", []),
        (" \t\r\n1.5e3 ", 1500.0),
        ('"\\u00e9\\n\\/\\b\\f\\v"', "\u00e9\n/\b\f\v"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('{"a":null,"b":[null]}', {"b": [None]}),
        ('{{"queueId":0,"topic":"T"}:5}', {(("queueId", 0), ("topic", "T")): 5}),
    ],
)
def test_what_is_accepted(text: str, value: Any) -> None:
    assert dialect.read(text) == value


@pytest.mark.parametrize("text", ["{{}:10000.0}", '{{"topic":"T","queueId":0}:5}', "{{{1:2}:3}:[{{}:4}]}"])
def test_objects_as_keys_are_written_as_they_were_read(text: str) -> None:
    assert dialect.read(dialect.write(dialect.read(text))) == dialect.read(text)
    assert dialect.write(dialect.read('{{"topic":"T"}:5}')) == b'{{"topic":"T"}:5}'


@pytest.mark.rule("N7")
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[", "]", "}", ",", ":", "{]", "[}", "[,]", "[1,,2]", "{,}", '{"a"}', '{"a":}', '{"a" 1}',
        "{a:1}", "[1 2]", "1 2", "tru", "nulls", "truefalse", '"', "'", '"\\', '"\\x41"', '"\\u12"', '"\\ud800"',
        "01x", "1.", ".5", "-", "+1", "1e", "NaN", "Infinity", "9" * 41, "{[1]:2}", "{{}", '{{"a":{}}:1}',
        "{true:1}", "{null:1}", "{1.5:{}", "// no\n1", "[1]]", '{"a":1}}', "\x00", "\ufeff1", "1e999", "[-1e999]",
    ],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        dialect.read(text)


def test_what_is_no_text_is_refused() -> None:
    for data in (b"\xff", b'"\xed\xa0\x80"'):
        with pytest.raises(RemoteProtocolError):
            dialect.read(data)
        with pytest.raises(RemoteProtocolError):
            dialect.read_as(data, str)


BOMB_BYTES = dialect.MAX_BYTES


@pytest.mark.rule("N7")
@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * BOMB_BYTES,
        b'{"a":' * (BOMB_BYTES // 5),
        b"[" + b"[]," * (BOMB_BYTES // 3 - 1) + b"]",
        b"{" + b'"":0,' * (BOMB_BYTES // 5),
        b"[" + b"1," * (dialect.MAX_LOOSE_VALUES + 1) + b"]",
        b'"' + b"\\n" * (BOMB_BYTES // 2 - 1),
        b"{" + b" " * (BOMB_BYTES - 1),
        b"1" * BOMB_BYTES,
        b"[" * 65 + b"]" * 65,
        b"1" + b" " * BOMB_BYTES,
    ],
    ids=lambda bomb: repr(bomb[:12]),
)
def test_bombs_are_refused(bomb: bytes) -> None:
    """None takes time or memory out of proportion: a quadratic reader would not end within the suite's limit."""
    with pytest.raises(RemoteProtocolError):
        dialect.read(bomb)
    with pytest.raises(RemoteProtocolError):
        dialect.read_as(bomb, dict[str, str])


@pytest.mark.parametrize(
    "text",
    [
        b"{'clientID':'c'}" + b" " * dialect.LOOSE_SHORT_BYTES,
        b'{"clientId":"c","x":[' + b"1," * dialect.LOOSE_SHORT_BYTES + b"1]}",
        b'{"clientID":"c","x":{' + b"1:1," * dialect.LOOSE_SHORT_BYTES + b"}}",
        b"{'clientID':'c','x':[" + b"1," * dialect.MAX_LOOSE_SHORT + b"]}",
        b'{"clientID":"c"}' + b" " * dialect.SHORT_BYTES,
    ],
    ids=["loose", "another type", "bare keys", "many loose values", "long"],
)
def test_a_request_is_read_in_one_turn_of_a_loop(text: bytes) -> None:
    """A heartbeat of 256 KB that was no strict JSON took 330 ms, locks of 512 KB 560 ms, a list of topics 660 ms."""
    with pytest.raises(RemoteProtocolError):
        dialect.read_short(text, Heartbeat)


def test_what_a_short_request_may_be() -> None:
    long = b'{"clientID":"c","x":[' + b"1," * dialect.LOOSE_SHORT_BYTES + b"1]}"
    for text in (long, b"{'clientID':'c',}", b'{"clientID":"c","withoutSub":null,"x":{1:{2:3}}}'):
        assert dialect.read_short(text, Heartbeat) == Heartbeat("c")
    with pytest.raises(RemoteProtocolError):
        dialect.read_short(long, Heartbeat, most_bytes=len(long) - 1)


def test_what_is_just_within_the_bounds_is_read() -> None:
    depth = dialect.MAX_DEPTH
    assert dialect.read(b"[" * depth + b"]" * depth)
    assert len(dialect.read(b"[" + b"1," * (dialect.MAX_LOOSE_VALUES - 2) + b"1]")) == dialect.MAX_LOOSE_VALUES - 1


def test_a_null_is_the_default_of_a_member_that_allows_none() -> None:
    text = '{"topicName":"T","order":null,"perm":null,"attributes":null,"unknown":1}'
    assert dialect.read_as(text, TopicConfig) == TopicConfig("T")


def test_numbers_and_booleans_may_be_strings() -> None:
    text = '{"topicName":"T","order":"true","perm":"4"}'
    assert dialect.read_as(text, TopicConfig) == TopicConfig("T", order=True, perm=4)


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", '{"topicName":5}', '{"topicName":"T","perm":"x"}', '{"topicName":"T","perm":99999999999}', "null"],
)
def test_another_type_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        dialect.read_as(text, TopicConfig)


class Shade(enum.IntFlag):
    DARK = 4


class Nested(msgspec.Struct, rename="camel"):
    z_last: int = 1
    a_first: str | None = None
    m_flag: Any = Shade.DARK


def test_members_are_written_by_name_without_nulls_and_flags_are_numbers() -> None:
    assert dialect.write(Nested()) == b'{"mFlag":4,"zLast":1}'
    assert (
        dialect.write({"perm": Perm.READ, "yes": True, "none": None, "half": 0.5})
        == b'{"perm":4,"yes":true,"half":0.5}'
    )
    assert (
        dialect.write({MessageQueue("t", "b", 0): (1, "x")}) == b'{{"brokerName":"b","queueId":0,"topic":"t"}:[1,"x"]}'
    )


@settings(max_examples=60)
@given(VALUES, VALUES, st.integers(1, 3), st.booleans())
def test_in_pieces_it_is_the_same_text(one: Any, other: Any, step: int, quoted: bool) -> None:
    class Pair(msgspec.Struct):
        one: Any
        other: Any

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect, "STEP_ITEMS", step)
        for pair in (Pair(one, other), Pair({1: one, (("a", 1),): other, 2: None}, [other, None, one])):
            pieces = list(dialect.write_pieces(pair, quoted=quoted))
            assert b"".join(pieces) == dialect.write(pair, quoted=quoted)
    table = OffsetTable(DataVersion(), {str(number): {} for number in range(3 * dialect.STEP_ITEMS)})
    assert max(map(len, dialect.write_pieces(table))) <= 10 * dialect.STEP_ITEMS


def test_files_have_a_line_for_each_entry() -> None:
    table = OffsetTable(DataVersion(), {"a@g": {0: 1, 1: 2}, "b@g": {}})
    assert b"".join(dialect.write_lines(table)).decode() == (
        '{\n"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},\n"groupTopicMap":{},\n'
        '"offsetTable":{\n"a@g":{"0":1,"1":2},\n"b@g":{}\n},\n"pullOffsetTable":{}}\n'
    )


def test_a_long_table_comes_in_pieces() -> None:
    table = OffsetTable(DataVersion(), {f"t{number}@g": {0: number} for number in range(3 * dialect.PIECE_VALUES)})
    pieces = list(dialect.write_lines(table))
    assert max(piece.count(b"\n") for piece in pieces) <= dialect.PIECE_VALUES // 2 + 1
    assert dialect.read_as(b"".join(pieces), OffsetTable) == table


def test_entries_with_very_many_values_come_in_pieces_of_their_own() -> None:
    """The topics of all groups were one piece, whatever they were: with a million 50 ms, every five seconds."""
    many = dialect.PIECE_VALUES
    names = dict.fromkeys(f"t{number}" for number in range(many))
    offsets = {f"t{number}@g": dict.fromkeys(range(many // 2), 1) for number in range(10)}
    table = OffsetTable(DataVersion(), offsets, group_topics={f"g{number}": names.keys() for number in range(10)})
    pieces = list(dialect.write_lines(table))
    assert max(piece.count(b",") for piece in pieces) <= many + 3
    assert dialect.read_as(b"".join(pieces), OffsetTable).group_topics["g9"] == list(names)


def test_an_entry_that_goes_while_a_table_is_written_is_left_out() -> None:
    lines = dialect.PIECE_VALUES // 2
    offsets = {f"t{number}@g": {0: number} for number in range(3 * lines)}
    pieces = []
    for piece in dialect.write_lines(OffsetTable(DataVersion(), offsets)):
        pieces.append(piece)
        if b'"t0@g"' in piece:
            for number in range(1, 2 * lines + 1):
                offsets.pop(f"t{number}@g", None)
    names = [f"t{number}@g" for number in (*range(lines), *range(2 * lines + 1, 3 * lines))]
    assert list(dialect.read_as(b"".join(pieces), OffsetTable).offsets) == names


def test_what_is_ours_is_read_whatever_its_size() -> None:
    table = OffsetTable(DataVersion(), {f"t{number}@g": dict.fromkeys(range(8), 1) for number in range(70_000)})
    text = b"".join(dialect.write_lines(table))
    with pytest.raises(RemoteProtocolError, match="too large"):
        dialect.read_as(text, OffsetTable)
    assert dialect.read_as(text, OffsetTable, bounded=False) == table
    bare = re.sub(rb'"(\d+)":', rb"\1:", text)
    assert dialect.read_as(bare, OffsetTable, bounded=False) == table
