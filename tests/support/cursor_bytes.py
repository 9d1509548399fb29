"""What is stored of a cursor, encoded and decoded without a stop."""

from __future__ import annotations

from tallystick.bookkeeper.wire.managed_ledgers import cursor_decoding, cursor_encoding, cursor_state_decoding
from tallystick.bookkeeper.wire.stream_values import CursorInfo, CursorState
from tallystick.codec.steps import finished


def encode_cursor(info: CursorInfo) -> bytes:
    return finished(cursor_encoding(info))


def decode_cursor(data: bytes, *, where: str) -> CursorInfo:
    return finished(cursor_decoding(data, where=where))


def decode_cursor_state(data: bytes, *, where: str) -> CursorState:
    return finished(cursor_state_decoding(data, where=where))
