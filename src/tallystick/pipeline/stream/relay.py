"""How a task relays entries to the driver, which owns the stream: a line of JSON, then frames, each with its answer.

::

    task                                       driver
    {"token": …, "stream": …, …}\\n     ──▶
                                        ◀──    \\n      the stream is open
    size (4 bytes) entry, entry, …      ──▶
                                        ◀──    \\n      they are stored
    …

An answer that has words is an error, in those of ``codes``, and the last one. The task ends the connection. Each entry
in a frame has its own size before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from tallystick.bookkeeper.stream.settings import StreamSettings

SETTING = "spark.tallystick.relayToken"  # Spark shows no value of a setting of such a name
LONGEST_LINE = 64 * 1024
LONGEST_FRAME = 64 * 1024 * 1024
AT_ONCE = 8  # frames whose answers a task waits for

_SIZE = struct.Struct(">I")
SIZE_BYTES = _SIZE.size


class RelayRequest(msgspec.Struct, frozen=True):
    """Which stream a task appends to. ``idle_s``: the driver owns it for so long after the last task."""

    token: str
    uri: str
    stream: str
    settings: StreamSettings
    switch: bool
    idle_s: float

    def encode(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


def decode_request(line: bytes) -> RelayRequest:
    """Raises msgspec.MsgspecError for what is none, or one of another version."""
    return msgspec.json.decode(line, type=RelayRequest)


def encode_frame(entries: Iterable[bytes]) -> bytes:
    body = b"".join([part for entry in entries for part in (_SIZE.pack(len(entry)), entry)])
    return _SIZE.pack(len(body)) + body


def frame_size(head: bytes) -> int:
    """Returns how many bytes follow the first SIZE_BYTES of a frame, or of an entry in it."""
    size: int = _SIZE.unpack(head)[0]
    return size
