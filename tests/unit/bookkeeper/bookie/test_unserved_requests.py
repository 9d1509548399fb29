"""What a connection has sent and nobody has served, without a connection."""

from __future__ import annotations

import tracemalloc
from typing import cast

import pytest

from tallystick.bookkeeper.bookie.unserved_requests import UnservedRequests
from tallystick.bookkeeper.bookie.wires import LENGTH_BYTES, Wire

V2, V3 = cast(Wire, "version 2"), cast(Wire, "version 3")


@pytest.fixture
def unserved() -> UnservedRequests:
    return UnservedRequests()


def test_bytes_are_whole_again_whatever_pieces_they_come_in(unserved: UnservedRequests) -> None:
    sent = b""
    for size in (1, 2, 3, 5000, 7, 4096, 4095, 4095, 1):
        sent += bytes([size % 251]) * size
        unserved.add(memoryview(sent)[-size:])
        assert unserved.size == len(sent) and unserved.is_due == (len(sent) >= LENGTH_BYTES)
    data = unserved.next()
    assert data == sent and type(data) is bytes and unserved.next() is data, "others keep parts of it"
    unserved.served(5000, 4000)
    unserved.add(memoryview(b"rest"))
    assert unserved.size == len(sent) - 4996 and unserved.next() == sent[5000:] + b"rest" and unserved.is_due
    unserved.served(unserved.size, 0)
    assert not unserved.size and not unserved.is_due


def test_small_pieces_take_about_what_is_counted(unserved: UnservedRequests) -> None:
    """Of a frame that came two bytes at a time 22 times as much was held."""
    unserved.need = 1 << 20
    piece = memoryview(b"uv")
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(20_000):
        unserved.add(piece)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert unserved.size == 40_000 and held < 2 * unserved.size


def test_what_comes_back_is_next_in_its_own_wire(unserved: UnservedRequests) -> None:
    unserved.add(memoryview(b"later"))
    assert unserved.wire is None
    unserved.turn_to(V2)
    unserved.put_back(V3, b"first")
    unserved.put_back(V3, b"second")
    assert unserved.size == 16 and unserved.has_returned and unserved.is_due and unserved.wire is V3
    assert unserved.head == unserved.next() == b"first"
    unserved.served(2, 0)
    assert unserved.next() == b"rst" and unserved.size == 14
    unserved.served(3, 0)
    assert unserved.next() == b"second"
    unserved.served(6, 0)
    assert not unserved.has_returned and unserved.wire is V2 and unserved.next() == b"later" and unserved.size == 5
    unserved.put_back(V3, b"third")
    unserved.clear()
    assert not unserved.size and not unserved.is_due
