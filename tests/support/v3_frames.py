"""Frames of protocol version 3: for tests that talk to a bookie, and cut or changed as a stranger may change them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import strategies as st

from support.bookies import KEY
from tallystick.bookkeeper.wire import v3, v3_responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec import v3_adds, v3_reads, v3_rows
from tallystick.codec.frames import ADD_PREFIX, encode_adds

RECOVERY: Any = {"recovery": True}  # fields of a request
HIGH: Any = {"priority": 100}


def entry_body(ledger: int, entry: int, payload: bytes = b"abc", lac: int | None = None) -> bytes:
    """An entry, digest CRC32C."""
    digest = Digest.of(DigestType.CRC32C)
    lac = entry - 1 if lac is None else lac
    frames, _ = encode_adds(KEY, ledger, entry, lac, 0, [payload], digest.compute, digest.size)
    return frames.joined(0, 1)[ADD_PREFIX:]


def adds_v3(
    ledger: int, entries: Iterable[int], payload: bytes = b"abc", key: bytes = KEY, number: int = 1, **fields: Any
) -> bytes:
    """ADD requests with the ids ``number``, ``number`` + 1, …; ``fields``: of the requests and their headers."""
    requests = (
        request_v3(v3.AddRequest, ledger, entry, key, entry_body(ledger, entry, payload), number=at, **fields)
        for at, entry in enumerate(entries, number)
    )
    return b"".join(requests)


def request_v3(
    kind: type[Any], *args: Any, number: int = 1, priority: int = 0, version: int = 3, **fields: Any
) -> bytes:
    """A request of any kind."""
    return v3.encode_request(kind(v3.Header(number, priority, version), *args, **fields))


def read_v3(ledger: int, entry: int, key: bytes | None = None, **fields: Any) -> bytes:
    """A READ request; with a key it fences."""
    return request_v3(v3.ReadRequest, ledger, entry, key, fence=key is not None, **fields)


def poll_v3(ledger: int, past: int, timeout_ms: int | None = None, **fields: Any) -> bytes:
    """A long poll."""
    return request_v3(v3.ReadRequest, ledger, -1, previous_lac=past, timeout_ms=timeout_ms, **fields)


def lac_body(ledger: int, lac: int, digest: bytes = b"crc!") -> bytes:
    return ledger.to_bytes(8, "big", signed=True) + lac.to_bytes(8, "big", signed=True) + digest


def write_lac_v3(ledger: int, lac: int, key: bytes = KEY, **fields: Any) -> bytes:
    return request_v3(v3.WriteLacRequest, ledger, lac, key, lac_body(ledger, lac), **fields)


def bodies(data: bytes) -> Iterator[bytes]:
    """The bodies in a buffer of whole frames."""
    position = 0
    while position < len(data):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        assert position <= len(data)
        yield data[start:position]


def answers_v3(data: bytes) -> list[Any]:
    """The responses in a buffer of whole frames."""
    return [v3_responses.decode_response(body) for body in bodies(data)]


def codes_v3(data: bytes) -> list[tuple[int, Code]]:
    """(request id, code) of the same."""
    return [(answer.request_id, answer.code) for answer in answers_v3(data)]


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
