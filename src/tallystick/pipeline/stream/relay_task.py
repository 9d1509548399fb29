"""The task's side of the at-least-once sink: it makes entries of its rows, and relays them to the driver.

Some frames are under way at one time. A task has ended well when the driver has said of all that they are stored.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterable
from typing import Self

from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice.attempt import MOST_BYTES, MOST_MESSAGES
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, encode_entry
from tallystick.errors import Unavailable, UsageError
from tallystick.pipeline.codes import error_of
from tallystick.pipeline.driver_port import DriverPort
from tallystick.pipeline.stream.relay import AT_ONCE, LONGEST_FRAME, RelayRequest, encode_frame

_CONNECT_S = 20.0
_ANSWER_S = 300.0  # the driver's appends fail before that
INSTEAD = (
    "call tallystick.spark.register in the driver, whose process then appends what the tasks relay; or leave out "
    "delivery: a task writes ledgers of its own then"
)


class EntryMaker:
    """Makes entries of messages, in their order: as they are (raw), or as those of one producer."""

    def __init__(self, settings: StreamSettings, producer: str) -> None:
        self._is_raw, self._producer = settings.entry_format == "raw", producer
        self._compression = None if settings.compression is None else Compression.parse(settings.compression)
        self._messages: list[OutMessage] = []
        self.count = 0  # messages so far
        self._bytes = self._sequence = self._published_ms = 0

    def add(self, messages: Iterable[OutMessage]) -> Iterable[list[bytes]]:
        """Yields entries that belong into one frame, whenever there is enough for it."""
        for message in messages:
            size = message.size
            if self._messages and self._bytes + size > MOST_BYTES:
                yield self.take()
            self._messages.append(message)
            self.count += 1
            self._bytes += size
            if self._bytes >= MOST_BYTES or len(self._messages) >= MOST_MESSAGES:
                yield self.take()

    def take(self) -> list[bytes]:
        """Returns what there is."""
        messages, self._messages, self._bytes = self._messages, [], 0
        if self._is_raw or not messages:
            return [message.data for message in messages]
        sequence, self._sequence = self._sequence, self._sequence + len(messages)
        self._published_ms = max(self._published_ms, time.time_ns() // 1_000_000)
        entry = encode_entry(
            messages,
            producer=self._producer,
            sequence=sequence,
            publish_time_ms=self._published_ms,
            compression=self._compression,
        )
        return [entry]


class Relay:
    """A connection to the driver, made with the first frame. Use it with ``with``."""

    def __init__(self, port: DriverPort | None, request: RelayRequest) -> None:
        self._port, self._request = port, request
        self._connection: socket.socket | None = None
        self._pending: deque[int] = deque()  # how many entries each frame has that is under way
        self.stored = 0  # entries

    def send(self, entries: list[bytes]) -> None:
        """Send a frame. Raises what the driver says of those before, Unavailable if it says nothing."""
        if not entries:
            return
        if self._connection is None:
            self._connection = self._connect()
        while len(self._pending) >= AT_ONCE:
            self._take_answer()
        frame = encode_frame(entries)
        if len(frame) > LONGEST_FRAME:
            raise UsageError("a message is too long", bytes=len(frame), max_bytes=LONGEST_FRAME)
        self._pending.append(len(entries))
        self._send(frame)

    def finish(self) -> int:
        """Returns how many entries are stored, when all are."""
        while self._pending:
            self._take_answer()
        return self.stored

    def _connect(self) -> socket.socket:
        if self._port is None:
            raise UsageError(f"nobody in the driver appends for tasks: {INSTEAD}")
        address = self._port.host, self._port.port
        try:
            connection = socket.create_connection(address, _CONNECT_S)
        except OSError as error:
            raise Unavailable(f"the driver's port cannot be reached: {error}", driver=address) from None
        connection.settimeout(_ANSWER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._pending.append(0)
        self._send(self._request.encode())
        self._take_answer()
        return connection

    def _send(self, data: bytes) -> None:
        assert self._connection is not None, "it was made before"
        try:
            self._connection.sendall(data)
        except OSError as error:
            self.finish()  # it may have said why it takes no more
            raise Unavailable(f"the driver takes no more of what is relayed to it: {error}") from None

    def _take_answer(self) -> None:
        assert self._connection is not None, "it was made before"
        try:
            line = _read_line(self._connection)
        except OSError as error:
            raise Unavailable(f"the driver says nothing of what was relayed to it: {error}") from None
        if not line.endswith(b"\n"):
            raise Unavailable("the driver's process ended, or did not take the token of this Spark context")
        if text := line.decode(errors="replace").strip():
            raise error_of(text) or Unavailable(text)
        self.stored += self._pending.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._connection is not None:
            self._connection.close()


def _read_line(connection: socket.socket) -> bytes:
    """Returns a line, or less if the connection ends. Most of them are a single byte."""
    line = bytearray()
    while not line.endswith(b"\n") and (more := connection.recv(1)):
        line += more
    return bytes(line)
