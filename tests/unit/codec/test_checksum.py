"""CRC32C: the known value, continuation, and agreement with a bit-by-bit twin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.codec.checksum import crc32c


def slow_crc32c(data: bytes) -> int:
    """The definition: reflected polynomial 0x82F63B78, all ones in, all ones out."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_continues(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second) == slow_crc32c(first + second)


@given(st.binary(max_size=100), st.integers(0, 100))
def test_takes_any_buffer(data: bytes, start: int) -> None:
    part = data[start:]
    assert crc32c(memoryview(data)[start:]) == crc32c(bytearray(part)) == crc32c(part)
