"""The frames of the HA port (``DefaultHAConnection``, ``DefaultHAClient``; H4, H5, H7), and our extension of them.

::

    slave → master   offset:i64                          a report: request, ack and heartbeat at once
    master → slave   offset:i64 size:i32 body[size]      log bytes that begin at offset; size 0 is a heartbeat

Extension: an original master sends nothing after a report of -1, and an original slave never reports -1. So a slave of
ours says -1 first; a master of ours answers with a frame at offset -1, whose body is a ``MasterHello``; then the slave
sends its ``SlaveHello``. Bodies are JSON; a slave's is padded to whole units of eight bytes, as all that a slave sends.

::

    slave → master   -1:i64                              do you know the extension?
    master → slave   -1:i64 size:i32 MasterHello         yes; also later, when it refuses to feed the slave
    slave → master   -2:i64 size:i64 SlaveHello          who I am, what I have, and a proof of it
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from tallystick.errors import RemoteProtocolError

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")
ASK = -1  # the offset that stands for the extension, in both directions
TELL = -2  # a slave's hello follows
MAX_BODY_BYTES = 4 * 1024 * 1024 - HEAD.size  # a longer frame blocks an original slave for ever
MAX_HELLO_BYTES = 16 * 1024
MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True)
class Span:
    """A piece of the log and its CRC32C."""

    offset: int
    size: int
    crc: int


@dataclass(frozen=True)
class MasterHello:
    """What a master has; with ``refused`` also why it does not feed this slave."""

    first: int
    end: int
    flushed: int
    sync_flush: bool = False
    refused: str | None = None
    instance: str = ""  # of the master's process: who copies its tables names it; empty: an older one of ours

    def encode(self) -> bytes:
        """Returns the whole frame."""
        body = msgspec.json.encode(self)
        return HEAD.pack(ASK, len(body)) + body


@dataclass(frozen=True)
class SlaveHello:
    """Who a slave is, where its log begins and ends, where it wants to go on, and the last pieces of what it has."""

    slave_id: str
    first: int
    end: int
    start: int | None  # None asks for the start of the master's newest file (H4)
    sync_flush: bool = False  # its reports are what it synced, not only appended
    spans: tuple[Span, ...] = ()

    def encode(self) -> bytes:
        """Returns the hello as whole units of eight bytes."""
        body = msgspec.json.encode(self)
        body += b" " * (-len(body) % REPORT.size)
        return REPORT.pack(TELL) + REPORT.pack(len(body)) + body


_MASTER = msgspec.json.Decoder(MasterHello)
_SLAVE = msgspec.json.Decoder(SlaveHello)


def decode_master_hello(body: bytes) -> MasterHello:
    """Decode the body of a frame. Raises RemoteProtocolError."""
    try:
        hello = _MASTER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the master's hello is not one: {error}") from error
    if not 0 <= hello.first <= hello.end <= MAX_OFFSET or not 0 <= hello.flushed <= MAX_OFFSET:
        raise RemoteProtocolError("the master's hello has impossible offsets", first=hello.first, end=hello.end)
    return hello


def decode_slave_hello(body: bytes) -> SlaveHello:
    """Decode what follows the size. Raises RemoteProtocolError."""
    try:
        hello = _SLAVE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the slave's hello is not one: {error}") from error
    places = (
        hello.start or 0,
        hello.first,
        hello.end,
        *(span.offset for span in hello.spans),
        *(span.size for span in hello.spans),
    )
    if min(places) < 0 or max(places) > MAX_OFFSET or not 0 < len(hello.slave_id) <= 255:
        raise RemoteProtocolError("the slave's hello has impossible values", end=hello.end, start=hello.start)
    return hello
