"""Sends and pulls with their typed headers; both codecs are compared in test_implementation.py, too."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from msgspec import Raw

from tallystick.codec.requests import scan_requests
from tallystick.rocketmq.wire.headers import REQUESTS, Header, PullHeader, SendHeader, read_send
from tallystick.rocketmq.wire.remoting import Command, FrameReader, encode, request
from tallystick.rocketmq.wire.values import RequestCode, Serialization

ALL = sys.maxsize
BOTH = pytest.mark.parametrize("serialization", Serialization)


def send_header(topic: str = "orders", *, properties: str = "WAIT\x01true\x02K\x01\u00e4\x02") -> SendHeader:
    return SendHeader("group", topic, "TBW102", 4, 3, 0, 1_700_000_000_000, -1, properties, batch=False, broker="b")


def pull_header() -> PullHeader:
    return PullHeader("group", "orders", 3, 1 << 40, 32, 2, -1, 15_000, 1, subscription="a || b", broker="b")


def framed(header: Header, code: int, serialization: Serialization, body: bytes = b"") -> bytes:
    letters = isinstance(header, SendHeader) and code != RequestCode.SEND_MESSAGE
    fields = header.to_letters() if letters and isinstance(header, SendHeader) else header.to_fields()
    command = request(code, fields, body, serialization=serialization)
    command.opaque = 77
    return encode(command)


def scanned(data: bytes, end: int | None = None) -> tuple[list[Command], int]:
    return scan_requests(data, 0, len(data) if end is None else end, ALL, ALL, REQUESTS)


@BOTH
@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
def test_sends_have_their_header(code: int, serialization: Serialization) -> None:
    data = framed(send_header(), code, serialization, b"body") + framed(send_header("t"), code, serialization)
    (first, second), stop = scanned(data)
    assert stop == len(data) and first.body == b"body" and second.body == b""
    assert (first.code, first.opaque, first.flag, first.serialization) == (code, 77, 0, serialization)
    assert read_send(first) is first.ext and read_send(first).to_fields() and read_send(second).topic == "t"
    for name in SendHeader.__struct_fields__:
        assert getattr(read_send(first), name) == getattr(send_header(), name)


@BOTH
def test_pulls_have_their_header(serialization: Serialization) -> None:
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        (command,), _ = scanned(framed(pull_header(), code, serialization))
        assert PullHeader.of(command) is command.ext
        assert command.fields == pull_header().to_fields() == PullHeader.of(command).to_fields()


@BOTH
@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields | {"AccessKey": "k"},  # the signature is made of all fields
        lambda fields: {name: value for name, value in fields.items() if name != "b"},
        lambda fields: fields | {"e": "three"},
        lambda fields: fields | {"e": str(1 << 31)},
    ],
)
def test_one_with_other_fields_is_left(
    change: Callable[[dict[str, str]], dict[str, str]], serialization: Serialization
) -> None:
    usual = framed(send_header(), 310, serialization)
    odd = encode(request(310, change(send_header().to_letters()), serialization=serialization))
    commands, stop = scanned(usual + odd + usual)
    assert len(commands) == 1 and stop == len(usual)
    reader = FrameReader(REQUESTS)
    first, second, third = reader.take(usual + odd + usual)
    assert second.fields == change(send_header().to_letters())
    assert isinstance(second.ext, Raw | dict) and first.fields == third.fields == send_header().to_letters()


def test_responses_and_other_requests_are_left() -> None:
    response = request(11, pull_header().to_fields())
    response.flag = 1
    for command in (response, request(RequestCode.HEART_BEAT, pull_header().to_fields())):
        assert scanned(encode(command)) == ([], 0)


@BOTH
def test_it_stops_where_a_frame_is_not_whole_and_takes_no_more_than_asked(serialization: Serialization) -> None:
    frame = framed(send_header(), 310, serialization, b"body")
    data, size = frame * 3, len(frame)
    for end in range(len(data) + 1):
        commands, stop = scanned(data, end)
        assert stop == end // size * size == len(commands) * size
    for most in range(4):
        assert scan_requests(data, 0, len(data), ALL, most, REQUESTS)[1] == most * size
    for until in (0, 1, size, size + 1):
        assert scan_requests(data, 0, len(data), until, ALL, REQUESTS)[1] == -(-until // size) * size


@BOTH
def test_a_frame_whose_content_costs_more_than_its_header_is_left(serialization: Serialization) -> None:
    for size, count in ((1 << 19, 1), (1 << 20, 0)):
        data = framed(send_header(), RequestCode.SEND_MESSAGE_V2, serialization, bytes(size))
        requests, stop = scanned(data)
        assert (len(requests), stop) == (count, count * len(data))


def test_a_long_text_with_escapes_is_read() -> None:
    for size in (4094, 4095, 4096, 4097, 100_000):
        header = send_header(properties="\x02" + "x" * (size - 1))
        (command,), _ = scanned(framed(header, 310, Serialization.JSON))
        assert read_send(command).properties == header.properties


def test_what_was_read_is_encoded_as_it_came() -> None:
    frame = framed(send_header(), 310, Serialization.JSON, b"body")
    (command,), _ = scanned(frame)
    assert encode(command) == frame
