"""Frames of protocol version 3 for tests of ``codec``: cut, and changed as a stranger may change them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from tallystick.codec import v3_adds, v3_reads, v3_rows


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def bodies_of(buffer: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The bounds of the bodies of whole frames."""
    while end - start >= 4:
        low = start + 4
        start = low + int.from_bytes(buffer[start:low], "big")
        if start > end:
            return
        yield low, start


def mangled(frame: bytes) -> st.SearchStrategy[bytes]:
    """The frame with a byte changed, cut out or put in, of the same length or with its length put right."""
    places = st.integers(0, len(frame) - 1)
    body, inside = frame[4:], st.integers(0, len(frame) - 5)
    return st.one_of(
        st.tuples(places, st.integers(0, 255)).map(lambda at: frame[: at[0]] + bytes((at[1],)) + frame[at[0] + 1 :]),
        inside.map(lambda at: framed(body[:at] + body[at + 1 :])),
        st.tuples(inside, st.binary(min_size=1, max_size=3)).map(
            lambda at: framed(body[: at[0]] + at[1] + body[at[0] :])
        ),
        st.tuples(inside, inside).map(lambda at: framed(body[: min(at)] + body[max(at) :] + body[min(at) : max(at)])),
        st.binary(max_size=len(body)).map(framed),
        st.tuples(inside, st.integers(1, 9)).map(
            lambda at: framed(
                body[: at[0]] + bytes((body[at[0]] | 0x80,)) + b"\x80" * (at[1] - 1) + b"\0" + body[at[0] + 1 :]
            )
        ),
    )


def with_each_byte_changed(frame: bytes, count: int) -> Iterator[bytes]:
    """The frame with each of its first bytes, so many, as each other value."""
    for place in range(count):
        for value in range(256):
            if value != frame[place]:
                yield b"%b%c%b" % (frame[:place], value, frame[place + 1 :])


@contextmanager
def failing_tries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let no try by columns succeed; the list gets the rows of each."""
    tried: list[int] = []

    def take_columns(rows: bytearray, row: int, spans: object) -> None:
        tried.append(len(rows) // row)

    with monkeypatch.context() as patch:
        for module in (v3_adds, v3_reads, v3_rows):
            patch.setattr(module, "take_columns", take_columns)
        yield tried
