from __future__ import annotations

import pytest

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.answers import PAGE_ENTRIES, page
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import DataVersion

VERSION = DataVersion(0, 5, 1)
SAME = dialect.write(VERSION).decode()
TABLE = {name: name for name in "dbace"}


def test_pages_are_in_the_order_of_the_names() -> None:
    assert list(page(TABLE, VERSION, None, 0, 2)) == ["a", "b"]
    assert list(page(TABLE, VERSION, SAME, 2, 2)) == ["c", "d"]
    assert list(page(TABLE, VERSION, SAME, 4, 2)) == ["e"]
    assert list(page(TABLE, VERSION, SAME, 5, 2)) == []


def test_a_table_that_changed_begins_again() -> None:
    other = dialect.write(DataVersion(0, 5, 2)).decode()
    assert list(page(TABLE, VERSION, other, 3, 2)) == ["a", "b"]
    assert list(page(TABLE, VERSION, "", 3, 2)) == ["a", "b"]


def test_odd_numbers_do_no_harm() -> None:
    assert list(page(TABLE, VERSION, SAME, -3, 2)) == ["a", "b"]
    assert list(page(TABLE, VERSION, SAME, 0, -1)) == []
    long = {f"{number:05}": 0 for number in range(PAGE_ENTRIES + 1)}
    assert len(page(long, VERSION, None, 0, None)) == len(page(long, VERSION, None, 0, 10**6)) == PAGE_ENTRIES
    with pytest.raises(RemoteProtocolError):
        page(TABLE, VERSION, "{", 0, 2)
