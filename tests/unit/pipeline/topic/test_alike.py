"""Properties that are taken apart by columns are those that each message has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.pipeline.topic.alike import FEWEST, alike_properties
from tallystick.rocketmq.wire.record import decode_properties

PARTS = st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"KEYS", b"b1", b"\xc3\xa9", b"\0"]), max_size=9).map(
    b"".join
)


def assert_alike(texts: list[bytes]) -> bool:
    alike = alike_properties(texts)
    if alike is None:
        return False
    alike.maps.validate(full=True)
    properties = [decode_properties(text) for text in texts]
    assert [dict(pairs) for pairs in alike.maps.to_pylist()] == properties
    for name in ("KEYS", "a", "absent"):
        values = alike.values(name)
        values.validate(full=True)
        # Of two with one name the first counts where one is asked for, as before.
        if [name for name, _ in alike.maps[0].as_py()].count(name) < 2:
            assert values.to_pylist() == [each.get(name) for each in properties]
    return True


@given(st.lists(PARTS, min_size=1, max_size=3), st.data())
def test_what_is_alike_is_taken_apart_as_one_by_one(texts: list[bytes], data: st.DataObject) -> None:
    assert_alike(data.draw(st.lists(st.sampled_from(texts), min_size=FEWEST, max_size=FEWEST + 2)))


@pytest.mark.parametrize(
    "text",
    [
        b"KEYS\x01%03d\x02TAGS\x01t\x02",
        b"KEYS\x01%03d\x02UNIQ_KEY\x01%03d",
        b"\x02\x02KEYS\x01%03d\x01more\x02\x01x\x02empty\x01\x02",
    ],
)
def test_values_of_one_size_are_alike(text: bytes) -> None:
    assert assert_alike([text.replace(b"%03d", b"%03d" % at) for at in range(500)])


def test_messages_without_a_pair_are_alike() -> None:
    assert assert_alike([b"\x02no pair"] * FEWEST)


@pytest.mark.parametrize(
    "last",
    [
        b"KEYS\x011",  # shorter
        b"KEYX\x0112",  # another name
        b"KEYS\x011\x02",  # the end of the value is elsewhere
        b"KEYS1\x012",
        b"KEYS\x01\xc3\xa9",
    ],
)
def test_of_another_form_is_one_enough_to_be_unlike(last: bytes) -> None:
    good = [b"KEYS\x0112"] * FEWEST
    assert assert_alike(good) and not assert_alike([*good, last])


def test_few_are_not_looked_at() -> None:
    assert not assert_alike([b"KEYS\x0112"] * (FEWEST - 1)) and not assert_alike([b""] * FEWEST)
