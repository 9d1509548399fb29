"""One TCP connection that speaks remoting, either end: whole commands in, commands out once per loop tick.

What comes is kept until somebody takes it as commands: a client at once, a server when it has time (``intake.py``).

Commands are encoded as the peer takes them, a piece at a time: until then the answer to a pull is some views of the
log, and a peer that takes nothing costs ``write_high_bytes``, whatever it asked for. A server's link stops reading such
a peer. A client's never does: then both sides would wait.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tallystick.errors import LocalProtocolError, RemoteProtocolError
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command, FrameReader, encode, encode_many
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.network import no_delay

ARENA_BYTES = 1024 * 1024
LEAST_READ_BYTES = 8 * 1024
_COMMAND_BYTES = 512  # that a queued command takes beside its body: on the wire not quite, in memory about
_TELL_BYTES = 1024 * 1024  # queued within one tick, before the server's memory hears of it


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


class Arena:
    """Where every read lands, to be copied out at once. ``buffer`` is what one read may fill."""

    def __init__(self) -> None:
        self._all = memoryview(bytearray(ARENA_BYTES))
        self.buffer = self._all

    def share(self, read_bytes: int) -> None:
        """One read brings so many bytes at most."""
        self.buffer = self._all[: max(LEAST_READ_BYTES, read_bytes)]


@dataclass(frozen=True)
class Surroundings:
    """What the links of one server or client share."""

    clock: Clock
    settings: RemotingSettings
    outbox: Outbox
    arena: Arena
    reads_on: bool  # even while the peer does not take what we send
    opened: Callable[[Link], None]
    received: Callable[[Link], None]  # there may be whole commands: call ``take``, at once or later
    closed: Callable[[Link, str], None]  # once, also when it was never connected
    refused: Callable[[Link, RemoteProtocolError], None]  # the peer broke the protocol; ``closed`` follows
    memory: Memory | None = None  # a server's
    unsendable: Callable[[Link, Command, LocalProtocolError], None] | None = None  # a request; it was left out


class Link(asyncio.BufferedProtocol):
    """See the module. Commands may be sent before it is connected; they leave when it is."""

    def __init__(self, around: Surroundings) -> None:
        self.peer = self.host = "unknown"
        self.goes_on = False  # when a server last took requests of it, more of them were there
        self.alive = True  # until it ends, for whatever reason
        self.gone = asyncio.Event()  # set while there is no transport
        self.gone.set()
        self.touched = around.clock.now()  # the last byte either way
        self.heard = self.touched  # the last byte from the peer
        self._around = around
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._out: list[Command] = []
        self._out_wire = self._out_held = 0  # bytes of these on the wire, and in memory
        self._more_held = 0  # since the memory was told, had the peer taken nothing
        self._waiting = 0  # bytes of requests that were read and wait to be served
        self._late = 0  # requests that a server puts off
        self._unfinished = 0  # as the memory was told
        self._full = False  # the peer does not take what we send
        self._waits = False  # with what was received for a server to have time for it
        self._ended = False

    def send(self, command: Command) -> None:
        """Queue an answer or a request; it leaves at the end of this loop tick. Dropped when the link has ended."""
        if not self.alive:
            return
        if not self._out:
            self._around.outbox.put(self)
        self._out.append(command)
        wire = held = len(command.body) + _COMMAND_BYTES
        if command.parts:
            wire, held = _sizes(command)
        self._out_wire += wire
        self._out_held += held
        self._more_held += held
        if self._more_held >= _TELL_BYTES:
            self.tell_unsent()

    def unsent_answers(self) -> set[int]:
        """Opaques of the answers queued in this tick."""
        return {command.opaque for command in self._out if command.is_answer}

    def keep(self, size: int) -> None:
        """``size`` bytes more, or less if it is negative, are kept of requests that wait to be served."""
        self._waiting += size
        if self._around.memory is not None and self.alive:
            self._around.memory.kept(self, self._waiting)

    def busy(self, change: int) -> None:
        """A server put off one request more, or one less: until all are served it reads no more of this peer."""
        self._late += change
        self._read_or_not()
        self._go_on()

    def take(self, *, most: int = sys.maxsize, most_bytes: int = sys.maxsize) -> list[Command]:
        """Commands that came, in order: some of them, as ``FrameReader.take`` has it. None of a peer that broke the
        protocol: that ends the link."""
        try:
            commands = self._reader.take(most=most, most_bytes=most_bytes)
        except RemoteProtocolError as error:
            self._around.refused(self, error)
            self.abort(f"broke the protocol: {error}")
            return []
        self._tell_unfinished(progress=bool(commands))
        if self._waits and not self._reader.ready:
            self._waits = False
            self._read_or_not()
        return commands

    def wait(self) -> None:
        """There is no time for what came: read no more of this peer until all of it was taken."""
        if not self._waits:
            self._waits = True
            self._read_or_not()
            self._tell_unfinished(progress=False)

    @property
    def ready(self) -> bool:
        """Whether a server may take more: there may be a whole request, none is put off, and answers are taken."""
        return self.alive and not self._late and not self._full and self._reader.ready

    @property
    def full(self) -> bool:
        """Whether the peer does not take what it was sent."""
        return self._full

    def close(self) -> None:
        """Send what is queued, as far as the peer takes it, then close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
        self._end("closed by this side")

    def abort(self, reason: str) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def condemn(self, reason: str) -> None:
        """Drop what is queued and take nothing more; close in the next turn of the loop."""
        self.alive = False
        self._drop_queued()
        asyncio.get_running_loop().call_soon(self.abort, reason)

    def flush(self) -> None:
        """Write what is queued, as far as the peer takes it."""
        transport = self._transport
        if not self._out or transport is None or not self.alive:
            return
        while self._out and not self._full:
            transport.write(self._encode_some())
        self.touched = self._around.clock.now()
        self.tell_unsent()

    def tell_unsent(self) -> None:
        """Tell the server's memory what the peer has not taken."""
        memory = self._around.memory
        if memory is not None and self.alive:
            written, self._more_held = self._more_held, 0
            inside = self._transport.get_write_buffer_size() if self._transport is not None else 0
            memory.unsent(self, inside + self._out_held, written=written)

    def _encode_some(self) -> bytes:
        """The frames of the queued commands, or of so many of the first that they fill the transport."""
        out, held = self._out, self._out_held
        high = self._around.settings.write_high_bytes
        if self._out_wire <= high:
            self._drop_queued()
        else:
            count = wire = held = 0
            while count < len(out) and wire < high:
                sizes = _sizes(out[count])
                wire, held, count = wire + sizes[0], held + sizes[1], count + 1
            self._out = out[count:]
            out = out[:count]
            self._out_wire -= wire
            self._out_held -= held
        try:
            data = encode_many(out)
        except LocalProtocolError:  # of one of them; the others are other people's
            data = b"".join([self._encode_or_refuse(command) for command in out])
        self._more_held += len(data) - held
        return data

    def _encode_or_refuse(self, command: Command) -> bytes:
        """An answer that cannot be sent becomes code 1. A request is left out, and whoever made it hears of it."""
        try:
            return encode(command)
        except LocalProtocolError as error:
            if command.is_answer:
                return encode(command.answer(ResponseCode.SYSTEM_ERROR, str(error)))
            if self._around.unsendable is not None:
                self._around.unsendable(self, command, error)
            return b""

    def _drop_queued(self) -> None:
        self._out = []
        self._out_wire = self._out_held = 0

    def _tell_unfinished(self, *, progress: bool) -> None:
        memory, size = self._around.memory, self._reader.kept_bytes
        if memory is not None and self.alive and size != self._unfinished:
            self._unfinished = size
            memory.unfinished(self, size, progress=progress)

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
            self.peer, self.host = f"{peer[0]}:{peer[1]}", str(peer[0])
        self._around.opened(self)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.gone.set()
        self._end(f"connection lost: {error}" if error else "the peer closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._around.arena.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.alive:
            return
        self.heard = self.touched = self._around.clock.now()
        had_some = self._reader.ready
        self._reader.put(self._around.arena.buffer[:nbytes])
        if had_some and not self._around.reads_on:  # a loop may read many times before anybody has a turn
            self.wait()
        elif self._reader.ready:
            self._around.received(self)
        else:
            self._tell_unfinished(progress=False)

    def pause_writing(self) -> None:
        self._full = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._full = False
        self.flush()
        self._read_or_not()
        self._go_on()

    def _go_on(self) -> None:
        """With what came before something stood in the way."""
        if self.ready:
            self._around.received(self)

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing() or self._around.reads_on:
            return
        if self._full or self._late or self._waits:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended, self.alive = True, False
            self._drop_queued()
            if self._around.memory is not None:
                self._around.memory.forget(self)
            self._around.closed(self, reason)


def _sizes(command: Command) -> tuple[int, int]:
    """About how many bytes it has on the wire, and in memory: a view shows bytes that are there anyway."""
    size, parts = len(command.body) + _COMMAND_BYTES, command.parts
    if not parts:
        return size, size
    return size + sum(map(len, parts)), size + sum([len(part) for part in parts if type(part) is not memoryview])
