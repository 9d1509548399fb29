"""Frames of the remoting port: cut, read, written, and refused."""

from __future__ import annotations

import json
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.frames import decode
from tallystick.errors import LocalProtocolError, RemoteProtocolError
from tallystick.rocketmq.wire.remoting import (
    MAX_FIELDS,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_LOOSE_BYTES,
    Command,
    FrameReader,
    encode,
    encode_many,
    held_bytes,
    request,
)
from tallystick.rocketmq.wire.signature import Credentials, sign, unsigned_fields
from tallystick.rocketmq.wire.values import Language, RequestCode, Serialization

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=10)
INTS = st.integers(-(2**31), 2**31 - 1)
SHORTS = st.integers(-(2**15), 2**15 - 1)
COMMANDS = st.builds(
    Command,
    code=SHORTS,
    opaque=INTS,
    flag=INTS,
    remark=st.none() | TEXTS.filter(bool),
    ext=st.none() | st.dictionaries(NAMES, TEXTS.filter(bool), min_size=1, max_size=5),
    body=st.binary(max_size=200),
    language=st.sampled_from(Language),
    version=SHORTS,
    serialization=st.sampled_from(Serialization),
)


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def seen(command: Command) -> tuple[object, ...]:
    """All of a command that goes over the wire; which header it came in too."""
    fields = None if command.ext is None else command.fields
    return (
        command.code, command.opaque, command.flag, command.remark, fields, bytes(command.body),
        command.language, command.version,
    )  # fmt: skip


@settings(max_examples=60)
@given(st.lists(COMMANDS, max_size=4), st.integers(1, 50))
def test_what_is_written_is_read_again_however_it_is_cut(commands: list[Command], step: int) -> None:
    data = encode_many(commands)
    assert data == b"".join(encode(command) for command in commands)
    reader = FrameReader()
    found = [command for at in range(0, len(data), step) for command in reader.take(data[at : at + step])]
    assert [seen(command) for command in found] == [seen(command) for command in commands]


@settings(max_examples=60)
@given(COMMANDS)
def test_a_command_that_nobody_looked_into_is_passed_on_unchanged(command: Command) -> None:
    data = encode(command)
    passed = decode(data)
    passed.serialization = command.serialization
    assert seen(decode(encode(passed))) == seen(command)


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_random_bytes_are_commands_or_refused(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        assert all(seen(decode(encode(command))) == seen(command) for command in FrameReader().take(data))


@settings(max_examples=60)
@given(st.sampled_from([0, 1, 2]), st.binary(max_size=200), st.binary(max_size=20))
def test_random_headers_are_commands_or_refused(kind: int, header: bytes, body: bytes) -> None:
    with suppress(RemoteProtocolError):
        command = decode(frame(header, body, kind))
        assert bytes(command.body) == body
        assert all(isinstance(value, str) for value in command.fields.values())


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
MEMBERS = st.sampled_from(["code", "extFields", "flag", "language", "opaque", "remark", "version", "other"])


@settings(max_examples=60)
@given(st.dictionaries(MEMBERS, JSON_VALUES))
def test_headers_with_any_values_are_commands_or_refused(header: dict[str, object]) -> None:
    with suppress(RemoteProtocolError):
        command = decode(frame(json.dumps(header).encode()))
        assert all(isinstance(value, str) for value in command.fields.values())


@settings(max_examples=60)
@given(COMMANDS, st.data())
def test_one_wrong_byte_is_another_command_or_refused(command: Command, data: st.DataObject) -> None:
    changed = bytearray(encode(command))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(RemoteProtocolError):
        for taken in FrameReader().take(bytes(changed)):
            assert seen(decode(encode(taken))) == seen(taken)


@pytest.mark.rule("N6")
@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", MAX_FRAME_BYTES - 3, 8),  # the original's limit counts the length too
        struct.pack(">II", 2**31 - 1, 8),
        struct.pack(">ii", -1, 8),
        struct.pack(">II", 3, 0),
        struct.pack(">II", 10, 11) + b'{"code":10}',  # a header longer than its frame, and all there
        struct.pack(">II", MAX_FRAME_BYTES - 4, MAX_HEADER_BYTES + 1),
        frame(b"{}"),  # no code
        frame(b"abcd"),
        frame(b"[]"),
        frame(b'{"code":"x"}'),
        frame(b'{"code":4294967296}'),
        frame(b'{"code":1' + b"0" * 5000 + b"}"),
        frame(b'{"code":10,"remark":"\xff"}'),
        frame(b'{"code":10,"remark":"\\ud800"}'),
        frame(b"[" * 1_000_000),
        frame(b'{"a":' * 200_000),
        frame(b"{}", kind=2),
        frame(b"{}", kind=255),
        frame(b"", kind=1),
        frame(struct.pack(">hBhiii", 10, 0, 513, 1, 0, 99), kind=1),
        frame(struct.pack(">hBhiii", 10, 0, 513, 1, 0, -1), kind=1),
        frame(struct.pack(">hBhiiii", 10, 0, 513, 1, 0, 0, 9), kind=1),
        frame(struct.pack(">hBhiiiih", 10, 0, 513, 1, 0, 0, 2, 30), kind=1),
        frame(struct.pack(">hBhiiiihi", 10, 0, 513, 1, 0, 0, 6, 0, -6), kind=1),  # a value that leads back to its name
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_breaks_the_format_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        FrameReader().take(data)


@given(st.lists(COMMANDS, max_size=8), st.integers(1, 3), st.integers(1, 200))
def test_what_is_taken_in_parts_is_all_that_came(commands: list[Command], most: int, most_bytes: int) -> None:
    reader = FrameReader()
    reader.put(encode_many(commands))
    found: list[Command] = []
    while reader.ready:
        taken = reader.take(most=most, most_bytes=most_bytes)
        assert 0 < len(taken) <= most and sum(len(encode(command)) for command in taken[:-1]) < most_bytes
        found += taken
    assert [seen(command) for command in found] == [seen(command) for command in commands]
    assert reader.buffered_bytes == 0


@pytest.mark.rule("N6")
def test_a_frame_of_the_greatest_length_is_waited_for() -> None:
    reader = FrameReader()
    assert reader.take(struct.pack(">II", MAX_FRAME_BYTES - 4, 8)) == []


def test_a_frame_of_the_greatest_length_is_read_and_written() -> None:
    room = MAX_FRAME_BYTES - len(encode(request(10)))
    data = encode(request(10, body=bytes(room)))
    assert len(data) == MAX_FRAME_BYTES
    assert len(decode(data).body) == room
    with pytest.raises(LocalProtocolError):
        encode(request(10, body=bytes(room + 1)))
    with pytest.raises(LocalProtocolError):
        encode(Command(10, parts=[bytes(room), b"x"]))


def test_a_header_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError):
        encode(request(10, {"properties": "x" * MAX_HEADER_BYTES}))


@pytest.mark.parametrize(
    "command",
    [
        request(200050, serialization=Serialization.BINARY),
        request(10, {"x" * 40000: "y"}, serialization=Serialization.BINARY),
    ],
)
def test_what_a_binary_header_cannot_hold_is_not_sent(command: Command) -> None:
    with pytest.raises(LocalProtocolError):
        encode(command)


@pytest.mark.parametrize("serialization", list(Serialization))
def test_a_text_that_no_utf_8_can_carry_is_not_sent(serialization: Serialization) -> None:
    for fields in ({"a": "\udcff"}, {"\ud83d": "a"}):
        with pytest.raises(LocalProtocolError, match="a text cannot be sent"):
            encode(request(10, fields, serialization=serialization))


def test_an_answer_has_the_opaque_and_a_json_header_whatever_the_request_had() -> None:
    asked = decode(encode(request(RequestCode.GET_MAX_OFFSET, {"topic": "T"}, serialization=Serialization.BINARY)))
    assert asked.serialization is Serialization.BINARY
    asked.opaque = 77
    response = asked.response(0, "fine", {"offset": "3"}, b"body", [b"and", memoryview(b" parts")])
    again = decode(encode(response))
    assert (again.opaque, again.is_response, again.is_one_way, again.remark) == (77, True, False, "fine")
    assert (again.fields, again.body, again.serialization) == ({"offset": "3"}, b"bodyand parts", Serialization.JSON)


def test_a_one_way_request_says_so() -> None:
    assert decode(encode(request(15, one_way=True))).is_one_way
    assert not decode(encode(request(15))).is_one_way


def test_no_fields_and_empty_fields_are_told_apart() -> None:
    assert b"extFields" not in encode(request(43))
    assert b'"extFields":{}' in encode(request(43, {}))
    assert decode(encode(request(43))).ext is None
    assert decode(encode(request(43))).fields == decode(encode(request(43, {}))).fields == {}


def test_a_header_in_the_dialect_is_read() -> None:
    header = b"{'code':10,'opaque':'5',\"extFields\":{'a':1,\"b\":true,'c':\"\\u4e2d\",'d':null,'e':{1:2},},}"
    command = decode(frame(header, b"body"))
    assert (command.code, command.opaque, command.body) == (10, 5, b"body")
    assert command.fields == {"a": "1", "b": "true", "c": "\u4e2d", "e": '{"1":2}'}


def test_fields_that_are_no_strings_become_strings() -> None:
    assert decode(frame(b'{"code":10,"extFields":{"a":1,"b":false,"c":null}}')).fields == {"a": "1", "b": "false"}
    assert decode(frame(b'{"code":10,"extFields":{"a":[1,null]}}')).fields == {"a": "[1,null]"}
    assert decode(frame(b'{"code":10,"extFields":null}')).fields == {}


def test_fields_that_are_no_object_are_refused_when_asked_for() -> None:
    command = decode(frame(b'{"code":10,"extFields":[1]}'))
    with pytest.raises(RemoteProtocolError):
        _ = command.fields


def test_empty_texts_of_a_binary_header_are_none() -> None:
    command = decode(encode(request(21, {"dataVersion": "", "topicSeq": "0"}, serialization=Serialization.BINARY)))
    assert command.fields == {"topicSeq": "0"}
    assert command.remark is None


def test_small_reads_of_a_large_frame_are_kept_in_one_buffer() -> None:
    data = encode(request(10, body=bytes(100_000)))
    reader = FrameReader()
    found = [command for at in range(0, len(data), 7) for command in reader.take(data[at : at + 7])]
    assert [len(command.body) for command in found] == [100_000]


def test_commands_do_not_change_with_the_memory_that_they_were_read_from() -> None:
    frame = encode(request(310, {"a": "g"}, b"body" * 10))
    for cut in (len(frame), 30):  # whole at once, and in two reads
        reader, arena = FrameReader(), bytearray(frame)
        commands = reader.take(memoryview(arena)[:cut]) + reader.take(memoryview(arena)[cut:])
        arena[:] = b"\xff" * len(arena)
        (command,) = commands
        assert (command.code, command.fields, command.body) == (310, {"a": "g"}, b"body" * 10)


@pytest.mark.parametrize(("number", "language"), [(1, Language.CPP), (12, Language.RUST), (99, Language.OTHER)])
def test_a_language_may_come_as_its_number(number: int, language: Language) -> None:
    assert decode(frame(b'{"code":34,"language":%d,"opaque":1}' % number)).language is language


def loose(fields: int, *, size: int = 1, quote: bytes = b"'") -> bytes:
    pairs = [quote + b"%d" % number + quote + b":" + quote + b"x" * size + quote for number in range(fields)]
    return b'{"code":10,"extFields":{' + b",".join(pairs) + b"}}"


@pytest.mark.rule("N6")
def test_a_header_that_is_no_strict_json_has_a_bound_of_its_own() -> None:
    """One of 1 MiB took a fifth of a second of the loop, and each connection may send one."""
    assert len(decode(frame(loose(MAX_FIELDS - 3))).fields) == MAX_FIELDS - 3  # others are of the header itself
    assert len(decode(frame(loose(30, size=2_000))).fields) == 30
    for header in (loose(MAX_FIELDS), loose(1, size=MAX_LOOSE_BYTES), loose(70_000)):
        with pytest.raises(RemoteProtocolError):
            decode(frame(header))


def test_a_long_header_of_strict_json_is_read() -> None:
    assert len(decode(frame(loose(70_000, quote=b'"'))).fields) == 70_000


def test_fields_that_are_no_strings_have_the_same_bound() -> None:
    text = b'{"code":10,"extFields":{%s}}'
    for pairs in (
        b",".join(b'"%d":1' % number for number in range(MAX_FIELDS)),
        b'"a":1,"b":"%s"' % bytes(b"x" * 70_000),
    ):
        command = decode(frame(text % pairs))
        with pytest.raises(RemoteProtocolError):
            _ = command.fields


@pytest.mark.rule("N6")
def test_a_binary_header_has_a_bounded_number_of_fields() -> None:
    fields = {str(number): "x" for number in range(MAX_FIELDS + 1)}
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_FIELDS} fields"):
        decode(encode(request(10, fields, serialization=Serialization.BINARY)))
    del fields["0"]
    assert decode(encode(request(10, fields, serialization=Serialization.BINARY))).fields == fields


def test_of_a_command_the_memory_that_it_holds_is_known() -> None:
    fields = {"a": "x" * 10_000, "b": "y"}
    for serialization in Serialization:
        sent = request(10, fields, b"body", serialization=serialization)
        sent.remark = "r" * 3000
        (command,) = FrameReader().take(encode(sent))
        assert 13_000 < held_bytes(command) < 4 * 13_100 + 300
        assert command.fields == fields and held_bytes(command) > 13_000
    assert held_bytes(request(10)) == 0 and held_bytes(request(10, None, b"1234")) == 4


def test_a_command_does_not_hold_what_its_header_has_beside_it() -> None:
    """A member that nobody knows may have a mebibyte."""
    header = b'{"code":10,"extFields":{"a":"b"},"unknown":"' + bytes(900_000).replace(b"\0", b"x") + b'"}'
    frame = struct.pack(">II", 4 + len(header), len(header)) + header
    tracemalloc.start()
    try:
        commands = FrameReader().take(frame)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert commands[0].fields == {"a": "b"}


def test_who_signed_a_request_is_left_out_of_what_somebody_else_is_shown() -> None:
    command = request(RequestCode.GET_CONSUMER_RUNNING_INFO, {"clientId": "c"})
    sign(command, Credentials("key", "secret", "token"), "once")
    assert len(command.fields) == 5 and unsigned_fields(command) == {"clientId": "c"}
