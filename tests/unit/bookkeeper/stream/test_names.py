"""Names of streams and cursors, as they are in the metadata: as Pulsar writes its topics and subscriptions."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.stream.names import cursor_name, decoded, stream_name

# What ``org.apache.pulsar.common.util.Codec`` of 4.2.4 makes of it.
SIGNS = "c:d~e*f g(h)!'\u00e9_-.+%/\""
WRITTEN = "c%3Ad%7Ee*f+g%28h%29%21%27%C3%A9_-.%2B%25%2F%22"


def test_a_topic_is_where_pulsar_looks_for_it() -> None:
    assert stream_name(f"persistent://t/n/{SIGNS}") == f"t/n/persistent/{WRITTEN}"
    assert stream_name(f"t/n/persistent/{WRITTEN}") == f"t/n/persistent/{WRITTEN}"


def test_a_cursor_is_where_pulsar_has_the_subscription() -> None:
    assert cursor_name(SIGNS) == WRITTEN
    assert decoded(WRITTEN) == SIGNS


@pytest.mark.parametrize("sign", [*map(chr, range(0x20, 0x7F)), "\u00e9", "\u4e2d", "\U0001f600"])
def test_a_name_comes_back(sign: str) -> None:
    assert decoded(cursor_name(f"a{sign}b")) == f"a{sign}b"
