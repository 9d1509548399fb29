"""What of a message is printed, and how."""

from __future__ import annotations

import json

import pytest

from tallystick import Position, StreamMessage
from tallystick.cli import stream_formats
from tallystick.errors import UsageError

MESSAGE = StreamMessage(
    Position(7, 41, 3),
    b"pay\xff",
    key="kéy",
    properties={"a": "1", "b": "2"},
    publish_time=1_792_000_000_050,
    event_time=5,
    producer="p",
    sequence=9,
)
RAW = StreamMessage(Position(7, 42), b"raw")
NULL = StreamMessage(Position(7, 43), b"", key=b"\xfe", publish_time=0, is_null=True)


@pytest.mark.parametrize(
    ("written", "message", "printed"),
    [
        ("%s\\n", MESSAGE, b"pay\xff\n"),
        ("%t|%o|%k|%K|%S|%T|%e|%p|%q|%h", MESSAGE, "s|7:41:3|kéy|4|4|1792000000050|5|p|9|a=1,b=2".encode()),
        ("%d", MESSAGE, b"2026-10-14T17:46:40.050Z"),
        ("%t|%o|%k|%K|%S|%T|%d|%e|%p|%q|%h", RAW, b"s|7:42||-1|3|-1||-1||-1|"),
        ("%s|%S|%k|%K|%d", NULL, b"|-1|\xfe|1|1970-01-01T00:00:00.000Z"),
        ("100%%%s", RAW, b"100%raw"),
        ("\\\\x41 \\x41\\t\\r\\xff", RAW, b"\\x41 A\t\r\xff"),
        ("%%s", RAW, b"%s"),
    ],
)
def test_a_format(
    written: str, message: StreamMessage, printed: bytes, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    stream_formats.format_printer(written, "s")(message)
    assert capsysbinary.readouterr().out == printed


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("%s %", "ends with a single %: write %%"),
        ("%", "ends with a single %"),
        ("%%%", "ends with a single %"),
        ("%x", "-f does not know %x; it knows %s %S"),
        ("% s", "-f does not know % ;"),
        ("%s\\", "-f knows \\n"),
        ("\\q", "-f knows \\n"),
        ("\\x4", "-f knows \\n"),
    ],
)
def test_what_is_no_format(written: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        stream_formats.compile_format(written, "s")
    assert said in str(raised.value)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    show = stream_formats.json_printer("s", hex_=False)
    for message in (MESSAGE, RAW, NULL):
        show(message)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        {
            "stream": "s",
            "position": "7:41:3",
            "publish_time": 1_792_000_000_050,
            "event_time": 5,
            "producer": "p",
            "sequence": 9,
            "properties": {"a": "1", "b": "2"},
            "key": "kéy",
            "data_base64": "cGF5/w==",
        },
        {"stream": "s", "position": "7:42", "data": "raw"},
        {
            "stream": "s",
            "position": "7:43",
            "publish_time": 0,
            "event_time": None,
            "producer": None,
            "sequence": None,
            "properties": {},
            "key_base64": "/g==",
            "data": None,
        },
    ]


def test_payloads_with_what_is_put_in_front(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for ids, delimiter in ((False, None), (True, None), (False, b":"), (True, b"=>")):
        show = stream_formats.payload_printer(ids=ids, hex_=False, delimiter=delimiter)
        show(MESSAGE)
        show(NULL)
    assert capsysbinary.readouterr().out.splitlines() == [
        b"pay\xff",
        b"",
        b"7:41:3\tpay\xff",
        b"7:43\t",
        "kéy:pay".encode() + b"\xff",
        b"\xfe:",
        "7:41:3\tkéy=>pay".encode() + b"\xff",
        b"7:43\t\xfe=>",
    ]
    stream_formats.payload_printer(ids=True, hex_=True, delimiter=None)(MESSAGE)
