"""TLS over a transport that exists: the one who upgrades a connection gives its protocol a ``TlsConnection`` for it.

::

    socket's transport  ⇄  TlsConnection: records in and out of two BIOs  ⇄  the protocol, with plain bytes

By hand and not by the loop's own ``start_tls``: what comes is decrypted into the protocol's buffer as far as that has
room, so that one read of the socket is one batch, as without TLS; and no byte is held here but the beginning of a
record, and, while the protocol does not read, what one read of the socket brought.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from typing import Any, cast

READ_BYTES = 64 * 1024  # of records that one read of the socket brings
# What OpenSSL, this object and its owner hold of one connection beside its bytes: 26 KB, as measured with 1,000.
CONNECTION_BYTES = 32 * 1024
MAX_HANDSHAKE_BYTES = 2 * READ_BYTES  # of the other side that wait for a step: certificates are a tenth of it

Buffer = bytes | bytearray | memoryview
# Called once: with None when the other side has shown who it is, else with what stood in the way.
Ready = Callable[[Exception | None], None]
InTurn = Callable[[Callable[[], None]], None]  # does a step, now or later


class TlsBuffer:
    """What all connections of one loop read records into."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


class TlsConnection(asyncio.Transport, asyncio.BufferedProtocol):
    """See the module. ``protocol`` has a ``get_buffer``; it is given bytes once ``ready`` was called with None.

    The handshake's own time is bounded by who made this: it ends it by ``abort``.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        buffer: TlsBuffer,
        ready: Ready,
        *,
        host: str | None = None,
        in_turn: InTurn | None = None,
    ) -> None:
        """``host``: of the server that must be there, on the client's side; None: this is the server. ``in_turn`` does
        the steps of the handshake; None: each is done at once."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._socket, self._protocol, self._buffer = transport, protocol, buffer.view
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._in, self._out, server_side=host is None, server_hostname=host)
        self._ready: Ready | None = ready
        self._in_turn = in_turn
        self._is_reading, self._is_ended = True, False

    def begin(self, records: Buffer = b"") -> None:
        """Take the transport over, and begin the handshake; ``records`` were read already."""
        self._socket.set_protocol(self)
        self._in.write(records)
        self._shake_hands()

    @property
    def held_bytes(self) -> int:
        """Bytes of records that are not decrypted yet."""
        return self._in.pending

    @property
    def peer_certificate(self) -> dict[str, Any]:
        """The certificate of the other side as ``ssl`` has it; empty if it has none. Once ``ready`` was called."""
        return dict(self._ssl.getpeercert() or {})

    # The handshake.

    def _shake_hands(self) -> None:
        if self._in_turn is None:
            self._handshake()
        else:
            self._in_turn(self._handshake)

    def _handshake(self) -> None:
        """Do one step of it: it is over with it, or waits for more bytes."""
        if self._ready is None or self._is_ended:
            return
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()  # which tells the other side
            self._end_handshake(error)
        else:
            self._flush()
            self._end_handshake(None)
            self._decrypt()

    def _end_handshake(self, error: Exception | None) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready(error)

    # The socket's side.

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._in.write(self._buffer[:nbytes])
        if self._ready is None:
            self._decrypt()
        elif self._in.pending > MAX_HANDSHAKE_BYTES:
            self._end_handshake(ConnectionError("more came than a TLS handshake has"))
        else:
            self._shake_hands()

    def eof_received(self) -> None:
        """The transport closes: what is encrypted goes one way no longer than the other."""
        if self._ready is None:
            self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        is_shaking, self._is_ended = self._ready is not None, True
        if is_shaking:
            self._end_handshake(exc or ConnectionError("the connection ended within the TLS handshake"))
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _decrypt(self) -> None:
        """Give the protocol what has come, a buffer full at a time, until it reads no more."""
        if self._ready is not None:  # a read would take steps of the handshake
            return
        more = True
        while more and self._is_reading and not self.is_closing():
            buffer = memoryview(cast(bytearray, self._protocol.get_buffer(-1)))
            size, filled = len(buffer), 0
            failure: Exception | None = None
            try:
                while filled < size:
                    count = self._ssl.read(size - filled, buffer[filled:])
                    if not count:
                        raise ssl.SSLZeroReturnError
                    filled += cast(int, count)
            except ssl.SSLWantReadError:
                more = False
            except ssl.SSLZeroReturnError:
                more, failure = False, ConnectionError("the other side closed TLS")
            except ssl.SSLError as error:
                more, failure = False, error
            if filled:
                self._protocol.buffer_updated(filled)
            if failure is not None and not self._is_ended:
                self._flush()
                self._socket.close()
        if not self._is_ended:
            self._flush()  # keys are changed so, and tickets go

    def _flush(self) -> None:
        if self._out.pending and not self._socket.is_closing():
            self._socket.write(self._out.read())

    # The protocol's side.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.BufferedProtocol, protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_ended or self._socket.is_closing()

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._socket.resume_reading()
        self._loop.call_soon(self._decrypt)  # not in here: whoever calls this is in the middle of something

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Buffer) -> None:
        if len(data) and not self.is_closing():
            view = memoryview(data)
            try:
                while len(view):
                    view = view[self._ssl.write(view) :]
            except ssl.SSLError:  # nothing more can be encrypted: the protocol hears that the connection is lost
                self._socket.abort()
            else:
                self._flush()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Tell the other side, send what is left, then end."""
        if self.is_closing():
            return
        if self._ready is None:
            with contextlib.suppress(ssl.SSLError):  # it did not tell us yet: nobody waits for that
                self._ssl.unwrap()
            self._flush()
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()
