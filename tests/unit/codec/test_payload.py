from __future__ import annotations

from array import array

import pytest

from tallystick.codec.payload import payload_bytes
from tallystick.errors import UsageError


@pytest.mark.parametrize("data", [b"ab", bytearray(b"ab"), memoryview(b"xabx")[1:3], array("B", b"ab")])
def test_what_has_a_buffer_is_bytes(data: object) -> None:
    assert payload_bytes(data, "an entry") == b"ab"


@pytest.mark.parametrize("data", [5, [1, 2], None, 1.5])
def test_what_has_none_is_refused(data: object) -> None:
    with pytest.raises(UsageError, match=r"^an entry is bytes \(given="):
        payload_bytes(data, "an entry")


def test_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"a message's body is bytes: give text.encode\(\) \(given=str\)"):
        payload_bytes("text", "a message's body")
