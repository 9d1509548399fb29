"""One end of a simulated connection.

::

    write ─► unsent (the transport's buffer) ─► under way (a window of the kernels') ─► arrived ─► read by the protocol
             pause_writing / resume_writing      delayed, in any pieces, in order      stays while not read

Bytes under way and arrived fill the peer's window until they are read: whoever does not read stops the writer. A close
comes behind the bytes, a reset in place of those that were not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from tallystick.sim.virtual.process import Process

HIGH_BYTES = 64 * 1024  # asyncio's default
MAX_READ_BYTES = 256 * 1024  # into a protocol without a buffer of its own

End = Exception | None  # how a connection ends: closed, or with an error


class Path(Protocol):
    """From one end to the other, as the network makes it. Everything arrives in order, or not at all."""

    @property
    def window_bytes(self) -> int: ...

    @property
    def buffer_bytes(self) -> int:
        """Returns the bytes at which a writer is paused, at most."""
        ...

    def wrote(self, source: SimTransport, data: bytes) -> None:
        """The protocol of this end has written these bytes, which are sent when there is room."""
        ...

    def send(self, source: SimTransport, data: bytes) -> None: ...

    def send_end(self, source: SimTransport, error: End) -> None:
        """The source is closed, or (with an error) reset."""
        ...

    def soon(self, transport: SimTransport, callback: Callable[[], None]) -> None:
        """Call back in the process of this end, some time later."""
        ...

    def is_cut(self, target: SimTransport) -> bool:
        """Returns whether nothing arrives there now."""
        ...

    def transport_ended(self, transport: SimTransport) -> None:
        """This end has ended."""
        ...


class SimTransport(asyncio.Transport):
    """See the module. ``peer`` is set by the network; ``attach`` gives it a protocol."""

    peer: SimTransport

    def __init__(self, path: Path, process: Process, here: tuple[str, int], there: tuple[str, int]) -> None:
        super().__init__({"peername": there, "sockname": here})
        self.process, self.here, self.there = process, here, there
        self._path, self._loop = path, asyncio.get_running_loop()
        self._protocol: asyncio.BaseProtocol | None = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._under_way = 0  # bytes that the peer has not read
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._is_writing_paused = False
        self._held_pieces: deque[bytes | tuple[End]] = deque()  # would have arrived, but for a cut
        self._arrived: deque[bytes] = deque()
        self._arrived_end: tuple[End] | None = None
        self._is_deaf = False  # nothing that comes now arrives
        self._is_reading, self._read_is_due = True, False
        self._is_closing = False
        self.is_over = False  # the protocol has lost it, or will
        self.arrives_at = 0.0  # when the last piece does

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Begin."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._read_soon()

    # What the protocol calls.

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_BYTES if low is None else 4 * low
        high = min(high, self._path.buffer_bytes)
        self._high, self._low = high, high // 4 if low is None else min(low, high)
        self._watch_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not len(data):
            return
        written = bytes(data)
        self._path.wrote(self, written)
        self._unsent.append(written)
        self._unsent_bytes += len(written)
        self._pump()

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(parts))

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._read_soon()

    def close(self) -> None:
        """Send what is left, then end."""
        if not self._is_closing:
            self._is_closing = True
            self._pump()

    def abort(self) -> None:
        """End at once."""
        if not self.is_over:
            self._end(None, ConnectionResetError("reset by the peer"))

    # Bytes out.

    def _pump(self) -> None:
        """Move what has room in the window from the buffer to the path."""
        while self._unsent and (room := self._path.window_bytes - self._under_way) > 0:
            data = self._unsent.popleft()
            if len(data) > room:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self._unsent_bytes -= len(data)
            self._under_way += len(data)
            self._path.send(self, data)
        if self._is_closing and not self._unsent and not self.is_over:
            # As kernels do: who closes without having read everything resets.
            self._end(None, ConnectionResetError("closed before it read all") if self._arrived else None)
        else:
            self._watch_writing()

    def _watch_writing(self) -> None:
        if self._protocol is None or self._is_closing:
            return
        if not self._is_writing_paused and self._unsent_bytes > self._high:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        elif self._is_writing_paused and self._unsent_bytes <= self._low:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def was_read(self, size: int) -> None:
        """The peer has read so many bytes."""
        self._under_way -= size
        if self._unsent:
            self._path.soon(self, self._pump)

    # Bytes in.

    def arrive(self, data: bytes | tuple[End]) -> None:
        """Bytes, or the end, have arrived from the network."""
        self._held_pieces.append(data)
        self.pass_held()

    def pass_held(self) -> None:
        """Let arrive what a cut held up, unless there still is one."""
        while self._held_pieces and not self._path.is_cut(self):
            data = self._held_pieces.popleft()
            if self.is_over or not self.process.alive:
                if isinstance(data, bytes) and not self.peer.is_over:
                    self._path.send_end(self, ConnectionResetError("nobody is there"))
            elif self._is_deaf:
                continue
            elif isinstance(data, bytes):
                self._arrived.append(data)
                self._read_soon()
            elif data[0] is not None:
                self._is_deaf = True
                self._path.soon(self, lambda error=data[0]: self._end(error, None, tell=False))  # type: ignore[misc]
            else:
                self._arrived_end = data
                self._read_soon()

    def forget(self) -> None:
        """Let nothing arrive here any more, and tell nobody."""
        self._is_deaf = True
        self._arrived.clear()
        self._arrived_end = None

    def _read_soon(self) -> None:
        if not self._read_is_due and self._protocol is not None and (self._arrived or self._arrived_end):
            self._read_is_due = True
            self._loop.call_soon(self._read, context=self.process.context)

    def _read(self) -> None:
        self._read_is_due = False
        if not self._is_reading or self._is_closing:
            return
        if not self._arrived:
            if self._arrived_end is not None:
                self._read_end()
            return
        size = self._take()
        if not self.is_over:
            self.peer.was_read(size)
            self._read_soon()

    def _take(self) -> int:
        """Give the protocol what one read of a socket would. Returns how many bytes."""
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = memoryview(self._protocol.get_buffer(-1))
            data = self._gather(len(buffer))
            buffer[: len(data)] = data
            self._protocol.buffer_updated(len(data))
        else:
            assert isinstance(self._protocol, asyncio.Protocol)
            data = self._gather(MAX_READ_BYTES)
            self._protocol.data_received(data)
        return len(data)

    def _gather(self, most: int) -> bytes:
        assert most > 0, "a protocol gave no room"
        data = self._arrived.popleft()
        while self._arrived and len(data) < most:
            data += self._arrived.popleft()
        if len(data) > most:
            self._arrived.appendleft(data[most:])
        return data[:most]

    def _read_end(self) -> None:
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        self._arrived_end = None
        if not self._protocol.eof_received():
            self.close()

    # The end.

    def _end(self, error: End, peer_end: End, *, tell: bool = True) -> None:
        """``peer_end`` is what the peer hears of it, if it does."""
        if self.is_over:
            return
        self._is_closing = self.is_over = True
        self._unsent.clear()
        self._unsent_bytes = 0
        if tell:
            self._path.send_end(self, peer_end)
        self._path.transport_ended(self)
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error, context=self.process.context)

    def process_died(self, *, tells: bool) -> None:
        """The kernel closes what a dead process had; a machine without power tells nobody."""
        if not self.is_over:
            self._is_closing = self.is_over = True
            if tells:
                self._path.send_end(self, ConnectionResetError("the process died"))
            self._path.transport_ended(self)
