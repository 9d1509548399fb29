"""Registrations and bookie ids."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.registration import check_bookie_id, decode, decode_or_empty, encode
from tallystick.bookkeeper.wire.values import BookieInfo, Endpoint
from tallystick.errors import MetadataError, UsageError

INT32 = st.integers(-(2**31), 2**31 - 1)
NAMES = st.lists(st.text(), max_size=2).map(tuple)
ENDPOINT = st.builds(Endpoint, st.text(), st.text(), INT32, st.text(), NAMES, NAMES)


@given(st.builds(BookieInfo, st.lists(ENDPOINT, max_size=3).map(tuple), st.dictionaries(st.text(), st.text())))
def test_what_was_written_is_read(info: BookieInfo) -> None:
    data = encode(info)
    if data:
        assert decode(data, "bookie-1") == info


def test_no_bytes_mean_that_the_id_is_the_address() -> None:
    assert decode(b"", "10.0.0.1:3181").address == ("10.0.0.1", 3181)
    assert decode(b"", "[::1]:3181").address == ("::1", 3181)
    for bookie in ("bookie-1", "host:", "host:x", "host:99999", "host:" + "9" * 5000, "host:٣", ":3181"):
        assert decode(b"", bookie).address is None


@pytest.mark.parametrize("data", [b"\xff", b"2\x00", b"\x32\x23\x0a", b"\x32\x02\x0a\x00", b"\x32\x03\x0a\x01\xff"])
def test_damaged_registrations(data: bytes) -> None:
    with pytest.raises(MetadataError) as caught:
        decode(data, "bookie-1")
    assert caught.value.bookie == "bookie-1"
    assert decode_or_empty(data, "bookie-1") == BookieInfo(())


@pytest.mark.parametrize("text", [b"an-id", b"host-1", b"a-protocol", b"auth-1", b"extension-1", b"key-1", b"value-1"])
def test_a_text_that_is_not_utf_8_is_damage(text: bytes) -> None:
    endpoint = Endpoint("an-id", "host-1", 1, "a-protocol", ("auth-1",), ("extension-1",))
    data = encode(BookieInfo((endpoint,), {"key-1": "value-1"}))
    with pytest.raises(MetadataError):
        decode(data.replace(text, b"\x80" + text[1:]), "bookie-1")


@pytest.mark.parametrize("port", [1 << 31, "3181"])
def test_what_cannot_be_stored_is_refused(port: Any) -> None:
    with pytest.raises(UsageError):
        encode(BookieInfo.at("localhost", port))


@pytest.mark.parametrize("bookie", ["bookie-1", "127.0.0.1:3181", "a_b.c-D9", "[fe80:1]:3181"])
def test_bookie_ids(bookie: str) -> None:
    assert check_bookie_id(bookie) == bookie


@pytest.mark.parametrize("bookie", ["", "readonly", ".", "..", "a/b", "a b", "a\n", "é", "a,b"])
def test_what_is_no_bookie_id(bookie: str) -> None:
    with pytest.raises(UsageError):
        check_bookie_id(bookie)
