"""The two ids of a message: the one its producer makes, and the one that says where it is stored.

A host is the address's 4 or 16 bytes and the port in 4. Sources: ``MessageClientIDSetter``, ``MessageDecoder``.
"""

from __future__ import annotations

import datetime
import ipaddress
import struct

from tallystick.codec.records import Buffer
from tallystick.errors import UsageError

_LONG = struct.Struct(">q")
_PORT = struct.Struct(">i")
_ADDRESS_AND_OFFSET = struct.Struct(">iq")


def encode_host(address: str, port: int) -> bytes:
    """Returns an IP address and a port as 8 or 20 bytes."""
    return ipaddress.ip_address(address).packed + _PORT.pack(port)


def decode_host(host: Buffer) -> tuple[str, int]:
    return str(ipaddress.ip_address(bytes(host[:-4]))), _PORT.unpack(host[-4:])[0]


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """Returns the offset id as upper-case hex: 32 digits, 56 for an IPv6 host."""
    return (store_host + _LONG.pack(physical_offset)).hex().upper()


def decode_message_id(message_id: str) -> tuple[str, int, int]:
    """Returns address, port and physical offset. Raises UsageError for a text that is no such id."""
    try:
        raw = bytes.fromhex(message_id)
        port, offset = _ADDRESS_AND_OFFSET.unpack(raw[-12:])
        return str(ipaddress.ip_address(raw[:-12])), port, offset
    except (ValueError, struct.error) as error:
        raise UsageError("this is no message id", id=message_id) from error


class UniqueKeys:
    """Makes ids for the messages of one client: address, process, a number of its own, time in the month, counter.

    The time counts from the first moment of the month, local time, in which an id is made; 32 bits of ms are 49.7 days.
    The counter tells apart what is sent in one millisecond.
    """

    def __init__(self, address: bytes, process_id: int, number: int) -> None:
        prefix = address + (process_id & 0xFFFF).to_bytes(2, "big") + (number & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = prefix.hex().upper()
        self._month_starts_ms = self._month_ends_ms = 0
        self._counter = 0
        self._now_ms, self._of_now = -1, ""  # the last time for which an id was made, and how its ids begin

    def next(self, now_ms: int) -> str:
        if now_ms != self._now_ms:
            self._begin(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._of_now}{counter:04X}"

    def run(self, now_ms: int, count: int) -> tuple[bytes, list[bytes]]:
        """Returns the next ``count`` ids, at least one: the beginning that they share, and the end of each."""
        if now_ms != self._now_ms:
            self._begin(now_ms)
        first = self._counter + 1
        numbers = [number & 0xFFFF for number in range(first, first + count)]
        self._counter = numbers[-1]
        ends = struct.pack(f">{count}H", *numbers).hex(",", 2).upper()
        return self._of_now.encode(), ends.encode().split(b",")

    def _begin(self, now_ms: int) -> None:
        if not self._month_starts_ms <= now_ms < self._month_ends_ms:  # a new one, or the clock was set back
            self._month_starts_ms, self._month_ends_ms = month_of(now_ms)
        self._now_ms = now_ms
        self._of_now = f"{self._prefix}{now_ms - self._month_starts_ms:08X}"


def month_of(now_ms: int) -> tuple[int, int]:
    """Returns the first moments of this month and of the next one, local time, in ms."""
    now = datetime.datetime.fromtimestamp(now_ms / 1000)
    start = datetime.datetime(now.year, now.month, 1)
    end = datetime.datetime(now.year + now.month // 12, now.month % 12 + 1, 1)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
