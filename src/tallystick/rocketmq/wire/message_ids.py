"""The two ids of a message: the one its producer makes, and the one that says where it is stored.

A host is the address's 4 or 16 bytes and the port in 4. Sources: ``MessageClientIDSetter``, ``MessageDecoder``.
"""

from __future__ import annotations

import ipaddress
import struct

from tallystick.codec.records import Buffer
from tallystick.errors import UsageError

_LONG = struct.Struct(">q")
_PORT = struct.Struct(">i")
_ADDRESS_AND_OFFSET = struct.Struct(">iq")


def encode_host(address: str, port: int) -> bytes:
    """An IP address and a port, 8 or 20 bytes."""
    return ipaddress.ip_address(address).packed + _PORT.pack(port)


def decode_host(host: Buffer) -> tuple[str, int]:
    return str(ipaddress.ip_address(bytes(host[:-4]))), _PORT.unpack(host[-4:])[0]


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """Upper-case hex of where a message is: 32 digits, 56 for an IPv6 host."""
    return (store_host + _LONG.pack(physical_offset)).hex().upper()


def decode_message_id(message_id: str) -> tuple[str, int, int]:
    """Address, port and physical offset. Raises UsageError when it is no such id."""
    try:
        raw = bytes.fromhex(message_id)
        port, offset = _ADDRESS_AND_OFFSET.unpack(raw[-12:])
        return str(ipaddress.ip_address(raw[:-12])), port, offset
    except (ValueError, struct.error) as error:
        raise UsageError("this is no message id", id=message_id) from error


class UniqueKeys:
    """Ids for the messages of one client: address, process, a number of its own, time in the month, counter.

    ``month_start_ms`` is the first moment of the current month, local time, when the ids begin. An id is good for a
    month's time; the counter tells apart what is sent in one millisecond.
    """

    def __init__(self, address: bytes, process_id: int, number: int, month_start_ms: int) -> None:
        prefix = address + (process_id & 0xFFFF).to_bytes(2, "big") + (number & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = prefix.hex().upper()
        self._month_start_ms = month_start_ms
        self._counter = 0
        self._now_ms, self._of_now = -1, ""  # the last time for which an id was made, and how its ids begin

    def next(self, now_ms: int) -> str:
        if now_ms != self._now_ms:
            self._now_ms = now_ms
            self._of_now = f"{self._prefix}{(now_ms - self._month_start_ms) & 0xFFFFFFFF:08X}"
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._of_now}{counter:04X}"


def unique_key_time(unique_key: str, month_start_ms: int) -> int | None:
    """When an id was made, if it was in the month that begins at ``month_start_ms``; None when it is no such id."""
    if len(unique_key) not in (32, 56):
        return None
    try:
        return month_start_ms + int(unique_key[-12:-4], 16)
    except ValueError:
        return None
