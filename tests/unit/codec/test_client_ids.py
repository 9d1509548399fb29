"""Hashes of client ids in properties that are alike; both codecs are compared in test_implementation.py, too."""

from __future__ import annotations

import pytest

from tallystick.codec.client_ids import hash_client_ids
from tallystick.codec.records import hash_utf8


@pytest.mark.parametrize("size", [1, 7, 32, 130])
@pytest.mark.parametrize(("before", "head"), [(b"", b""), (b"WAIT\x01true\x02", b"\x02WAIT\x01true")])
@pytest.mark.parametrize(("after", "tail"), [(b"", b""), (b"\x02", b""), (b"\x02A\x01b\x02", b"A\x01b\x02")])
def test_each_id_has_the_hash_of_its_text(size: int, before: bytes, head: bytes, after: bytes, tail: bytes) -> None:
    ids = [bytes([letter]) * size for letter in b"ABCZ"]
    hashes = [hash_utf8(each, 9) for each in ids]
    assert hash_client_ids([before + b"UNIQ_KEY\x01" + each + after for each in ids], 9) == (head, tail, hashes)


def test_ids_need_not_be_ascii() -> None:
    ids = ["ä€", "é€"]
    properties = [f"UNIQ_KEY\x01{each}\x02".encode() for each in ids]
    assert hash_client_ids(properties, 3) == (b"", b"", [hash_utf8(each.encode(), 3) for each in ids])


@pytest.mark.parametrize(
    "other",
    [
        b"A\x011\x02UNIQ_KEY\x01B\x02C\x013\x02",
        b"A\x012\x02UNIQ_KEY\x01B\x02C\x012\x02",
        b"A\x011\x02UNIQ_KEY\x01BB\x02C\x012\x02",
        b"A\x011\x02UNIQ-KEY\x01B\x02C\x012\x02",
        b"A\x011\x02UNIQ_KEY\x01\x02\x02C\x012\x02",
        b"",
    ],
)
def test_properties_that_differ_in_anything_else_are_not_alike(other: bytes) -> None:
    properties = b"A\x011\x02UNIQ_KEY\x01A\x02C\x012\x02"
    assert hash_client_ids([properties, properties.replace(b"\x01A", b"\x01B")], 0) is not None
    assert hash_client_ids([properties, other], 0) is None


@pytest.mark.parametrize("without", [b"", b"UNIQ_KEY\x01", b"UNIQ_KEY\x01\x02", b"XUNIQ_KEY\x01A\x02"])
def test_properties_without_an_id_have_no_hash(without: bytes) -> None:
    assert hash_client_ids([without, without], 0) is None
