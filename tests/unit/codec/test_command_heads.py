"""JSON headers as they leave; both codecs are compared in test_implementation.py, too."""

from __future__ import annotations

import json
import struct

import pytest
from msgspec import Raw

from tallystick.codec.command_heads import encode_head


def test_a_head_has_both_lengths_and_the_members_in_their_order() -> None:
    header = (
        b'{"code":310,"extFields":{"a":"b","c":""},"flag":-1,"language":"JAVA","opaque":7,"remark":"r",'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    head = encode_head(310, {"a": "b", "c": ""}, -1, "JAVA", 7, "r", 513, 1000)
    assert head == (4 + len(header) + 1000).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


def test_what_is_none_is_left_out() -> None:
    assert list(json.loads(encode_head(0, None, 1, "PYTHON", 0, None, 0, 0)[8:])) == [
        *("code", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version"),
    ]


def test_fields_may_be_encoded() -> None:
    assert b',"extFields":{"x":"y"},' in encode_head(0, Raw(b'{"x":"y"}'), 0, "PYTHON", 0, None, 0, 0)
    assert b',"extFields":{},' in encode_head(0, {}, 0, "PYTHON", 0, None, 0, 0)


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_texts_are_escaped(size: int) -> None:
    text = "".join(map(chr, range(200))) * size
    fields = {text: text[::-1]}
    header = json.loads(encode_head(0, fields, 0, "PYTHON", 0, text, 0, 0)[8:])
    assert header["extFields"] == fields and header["remark"] == text


@pytest.mark.parametrize("behind", [(1 << 32) - 50, 1 << 32, 1 << 63, -1000])
def test_a_command_whose_length_cannot_be_said_is_refused(behind: int) -> None:
    with pytest.raises(struct.error):
        encode_head(0, None, 0, "PYTHON", 0, None, 0, behind)


def test_a_text_that_is_none_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_head(0, {"a": "\ud800"}, 0, "PYTHON", 0, None, 0, 0)
