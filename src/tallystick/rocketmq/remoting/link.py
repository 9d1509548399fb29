"""One TCP connection that speaks remoting, either end: whole commands in, commands out once per loop tick.

A server's link stops reading a peer that does not take its answers. A client's never does: then both sides would wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tallystick.errors import LocalProtocolError, RemoteProtocolError
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command, FrameReader, encode, encode_many
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.network import no_delay

ARENA_BYTES = 1024 * 1024


class Outbox:
    """Which links have something to send: each writes once per loop tick."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._links: list[Link] = []
        self._scheduled = False

    def put(self, link: Link) -> None:
        self._links.append(link)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def flush(self) -> None:
        """Write now instead of at the end of the tick."""
        links, self._links = self._links, []
        for link in links:
            link.flush()

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()


@dataclass(frozen=True)
class Surroundings:
    """What the links of one server or client share."""

    clock: Clock
    settings: RemotingSettings
    outbox: Outbox
    arena: bytearray  # every read lands here; it is copied out once
    reads_on: bool  # even while the peer does not take what we send
    opened: Callable[[Link], None]
    received: Callable[[Link, list[Command]], None]
    closed: Callable[[Link, str], None]  # once, also when it was never connected
    refused: Callable[[Link, RemoteProtocolError], None]  # the peer broke the protocol; ``closed`` follows


class Link(asyncio.BufferedProtocol):
    """See the module. Commands may be sent before it is connected; they leave when it is."""

    def __init__(self, around: Surroundings) -> None:
        self.peer = "unknown"
        self.alive = True  # until it ends, for whatever reason
        self.gone = asyncio.Event()  # set while there is no transport
        self.gone.set()
        self.touched = around.clock.now()  # the last byte either way
        self.heard = self.touched  # the last byte from the peer
        self._around = around
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._out: list[Command] = []
        self._unsent = False  # the peer does not take what we send

    def send(self, command: Command) -> None:
        """Queue an answer or a request; it leaves at the end of this loop tick. Dropped when the link has ended."""
        if self.alive:
            if not self._out:
                self._around.outbox.put(self)
            self._out.append(command)

    def unsent_answers(self) -> set[int]:
        """Opaques of the answers queued in this tick."""
        return {command.opaque for command in self._out if command.is_answer}

    def close(self) -> None:
        """Send what is queued, then close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
        self._end("closed by this side")

    def abort(self, reason: str) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def flush(self) -> None:
        transport = self._transport
        if not self._out or transport is None or not self.alive or (self._unsent and self._around.reads_on):
            return
        out, self._out = self._out, []
        try:
            data = encode_many(out)
        except LocalProtocolError:
            data = b"".join([_encode_or_refuse(command) for command in out])
        transport.write(data)
        self.touched = self._around.clock.now()
        if transport.get_write_buffer_size() > self._around.settings.write_limit_bytes:
            self.abort("the peer does not take its answers")

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self.gone.clear()
        self._transport = transport
        if not self.alive:  # ended while connecting
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._around.settings.write_high_bytes)
        no_delay(transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer = f"{peer[0]}:{peer[1]}"
        self._around.opened(self)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.gone.set()
        self._end(f"connection lost: {error}" if error else "the peer closed the connection")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._around.arena

    def buffer_updated(self, nbytes: int) -> None:
        if not self.alive:
            return
        self.heard = self.touched = self._around.clock.now()
        try:
            commands = self._reader.take(memoryview(self._around.arena)[:nbytes])
        except RemoteProtocolError as error:
            self._around.refused(self, error)
            self.abort(f"broke the protocol: {error}")
            return
        if commands:
            self._around.received(self, commands)

    def pause_writing(self) -> None:
        self._unsent = True
        if self._transport is not None and not self._around.reads_on:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._unsent = False
        if self._transport is None or not self.alive:
            return
        if self._around.reads_on:
            self.flush()
        else:
            self._transport.resume_reading()

    def _end(self, reason: str) -> None:
        if self.alive:
            self.alive = False
            self._out.clear()
            self._around.closed(self, reason)


def _encode_or_refuse(command: Command) -> bytes:
    """An answer that fits no frame becomes code 1; whoever asked with such a request hears of it by the time-out."""
    try:
        return encode(command)
    except LocalProtocolError as error:
        return encode(command.answer(ResponseCode.SYSTEM_ERROR, str(error))) if command.is_answer else b""
