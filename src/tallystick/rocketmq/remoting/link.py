"""One TCP connection that speaks remoting, either end: whole commands in, commands out once per loop tick, or sooner.

Received bytes are kept until they are taken as commands: by a client at once, by a server when it has time
(``intake.py``). Commands are encoded as the peer takes them, a piece at a time: until then the response to a pull is
some views of the log, and a peer that takes nothing costs ``write_high_bytes``, whatever it asked for. A server's link
stops reading such a peer. A client's never does: then both sides would wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from tallystick.codec.implementation import is_compiled
from tallystick.errors import LocalProtocolError, RemoteProtocolError
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.headers import REQUESTS
from tallystick.rocketmq.wire.remoting import Command, FrameReader, encode, encode_many
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.arena import Arena
from tallystick.runtime.clock import Clock
from tallystick.runtime.network import no_delay
from tallystick.runtime.peers import peer_of
from tallystick.runtime.tls import CONNECTION_BYTES, TlsConnection
from tallystick.runtime.turn_order import TurnOrderCore
from tallystick.runtime.turn_time import TurnTime
from tallystick.runtime.unsent_writes import UnsentWrites

_COMMAND_BYTES = 512  # that a queued command takes beside its body: on the wire not quite, in memory about
FLUSH_S = 0.005  # of one turn of the loop
_TELL_BYTES = 1024 * 1024  # queued within one tick, before the server's memory hears of it
# Requests of so many bytes leave before the end of the tick: a client may make hundreds in one, and without them their
# server, its slaves and the client work one after another instead of at the same time.
_EARLY_BYTES = 64 * 1024
_DRAIN_S = 0.5  # for what is queued to leave when this side stops


class Outbox:
    """The links that have something to send: each writes once per loop tick, as far as there is time for that. Of those
    that wait for more of it hosts have their turns, who used least first (``runtime/turn_order.py``)."""

    def __init__(self, clock: Clock) -> None:
        self._loop, self._clock = asyncio.get_running_loop(), clock
        self._turn_time = TurnTime.of(self._loop)
        self._links: list[Link] = []  # of this tick
        self._waiting: TurnOrderCore[Link] = TurnOrderCore()
        self._scheduled = self._is_promised = False

    def put(self, link: Link) -> None:
        self._links.append(link)
        if not self._is_promised:
            self._write_soon()

    def promise(self) -> None:
        """``flush`` comes in this turn of the loop, whatever happens."""
        self._is_promised = True

    def closed(self, link: Link) -> None:
        """A link has ended: it waits no more."""
        self._waiting.discard(link, link.host)

    def flush(self) -> None:
        """Write now instead of at the end of the tick: it takes the kernel as long as everything before, for a crowd.
        Those that there is no time for have it in the next ticks."""
        links, self._links, self._is_promised = iter(self._links), [], False
        ends_at = self._turn_time.ends(self._clock.now(), FLUSH_S)
        try:
            for link in () if self._waiting else links:
                self._write(link)
                if self._clock.now() >= ends_at:
                    break
            self._wait(links)
            cpu = self._clock.cpu() if self._waiting else 0.0
            while self._waiting:
                link = self._waiting.pop()
                self._write(link)
                began, cpu = cpu, self._clock.cpu()
                self._waiting.spent(link if link.alive else None, link.host, cpu - began)
                if self._clock.now() >= ends_at:
                    break
        finally:
            self._wait(links)  # whatever happens
            if self._waiting:
                self._write_soon()

    def _wait(self, links: Iterable[Link]) -> None:
        for link in links:
            if link.alive:
                self._waiting.add(link, link.host)

    def _write(self, link: Link) -> None:
        try:
            link.flush()
        except Exception as error:
            link.abort(f"a fault here: {error!r}")  # some of it may have left
            raise

    def write_early(self, link: Link) -> None:
        """Write what this link has before the tick is over. A fault ends it: those who wait for responses hear of it,
        and who made the last request as they do."""
        with contextlib.suppress(Exception):
            self._write(link)

    def _write_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()


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
    # A link is to be aborted for that reason, in this turn of the loop or one of the next ones.
    condemned: Callable[[Link, str], None] = lambda link, reason: link.abort(reason)


class Link(asyncio.BufferedProtocol):
    """See the module. Commands may be sent before it is connected; they leave when it is."""

    def __init__(self, around: Surroundings) -> None:
        self.peer = self.host = "unknown"
        self.has_asked = False  # a whole command came
        self.alive = True  # until it ends, for whatever reason
        self.disconnected = asyncio.Event()  # set while there is no transport
        self.disconnected.set()
        self.last_active = around.clock.now()  # the last byte either way
        self.last_read = self.last_active  # the last byte from the peer
        self._around = around
        # To a client no requests come. In Python the typed header of a lone one takes less when it is asked for.
        self._forms = REQUESTS if is_compiled() and not around.reads_on else None
        self._reader = FrameReader(self._forms)
        self._transport: asyncio.Transport | None = None
        self._queued_commands: list[Command] = []
        self._out_wire_bytes = self._out_memory_bytes = 0  # bytes of these on the wire, and in memory
        self._new_memory_bytes = 0  # that were queued since the server's memory was told
        self._writes = UnsentWrites()  # of a server, while the peer has not taken all
        self._has_unsent = False  # as the memory knows it: a peer nearly always takes all at once
        self._request_bytes = 0  # bytes of requests that were read and wait to be served
        self._late_requests = 0  # requests that a server puts off
        self._unfinished_bytes = 0  # as the memory was told
        self._full = False  # the peer does not take what we send
        self._rests = False  # much was read in this turn
        self._awaits_turn = False  # there are requests for which the server had no time
        self._ended = False

    def send(self, command: Command) -> None:
        """Queue a response or a request; it leaves at the end of this loop tick, a client's sooner behind many, or is
        dropped if the link has ended."""
        if not self.alive:
            return
        if not self._queued_commands:
            self._around.outbox.put(self)
        self._queued_commands.append(command)
        wire_bytes = memory_bytes = len(command.body) + _COMMAND_BYTES
        if command.parts:
            wire_bytes, memory_bytes = _sizes(command)
        self._out_wire_bytes += wire_bytes
        self._out_memory_bytes += memory_bytes
        self._new_memory_bytes += memory_bytes
        if self._new_memory_bytes >= _TELL_BYTES:
            self.tell_unsent()
        if self._out_wire_bytes >= _EARLY_BYTES and self._around.reads_on and not self._full:
            self._around.outbox.write_early(self)

    def unsent_responses(self) -> set[int]:
        """Returns the opaques of the responses queued in this tick."""
        return {command.opaque for command in self._queued_commands if command.is_response}

    def keep(self, size: int) -> None:
        """Count ``size`` bytes more, or less if it is negative, of requests that wait to be served."""
        self._request_bytes += size
        if self._around.memory is not None and self.alive:
            self._around.memory.kept(self, self._request_bytes)

    def busy(self, change: int) -> None:
        """A server put off one request more (+1) or one less (-1): until none is left it reads no more of this peer."""
        before, self._late_requests = self._late_requests, self._late_requests + change
        if not before or not self._late_requests:
            self._read_or_not()
            self._go_on()

    def take(self, *, most: int = sys.maxsize, most_bytes: int = sys.maxsize) -> list[Command]:
        """Returns commands that came, in order, as ``FrameReader.take`` does. Of a peer that broke the protocol it
        returns none, and the link ends."""
        try:
            commands = self._reader.take(most=most, most_bytes=most_bytes)
        except RemoteProtocolError as error:
            self._around.refused(self, error)
            self.abort(f"broke the protocol: {error}")
            return []
        self.has_asked = self.has_asked or bool(commands)
        self._tell_unfinished(progress=bool(commands))
        if self._awaits_turn and not self._reader.ready:
            self._awaits_turn = False
            self._read_or_not()
        return commands

    def wait(self) -> None:
        """There is no time for what came: read no more of this peer until all of it was taken."""
        if not self._awaits_turn:
            self._awaits_turn = True
            self._read_or_not()
            self._tell_unfinished(progress=False)

    @property
    def ready(self) -> bool:
        """Whether a server may take more: a request may have come, none is put off, and the peer takes responses."""
        return self.alive and not self._late_requests and not self._full and self._reader.ready

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
        """Drop what is queued and take nothing more; close in the next turn of the loop or, of very many links, in a
        later one."""
        self.alive = False
        self._read_or_not()
        self._drop_queued()
        self._drop_read()
        asyncio.get_running_loop().call_soon(self._around.condemned, self, reason)

    def flush(self) -> None:
        """Write what is queued, as far as the peer takes it."""
        transport = self._transport
        if not self._queued_commands or transport is None or not self.alive:
            return
        while self._queued_commands and not self._full:
            data = self._encode_some()
            transport.write(data)
            if self._around.memory is not None and (self._has_unsent or transport.get_write_buffer_size()):
                self._has_unsent = True
                self._writes.wrote(len(data))
        self.last_active = self._around.clock.now()
        if self._has_unsent or self._queued_commands:
            self.tell_unsent()
        self._new_memory_bytes = 0

    def tell_unsent(self) -> None:
        """Tell the server's memory what the peer has not taken."""
        memory = self._around.memory
        if memory is not None and self.alive:
            self._new_memory_bytes = 0
            inside = self._transport.get_write_buffer_size() if self._transport is not None else 0
            has_taken = self._writes.look(inside)
            size = self._writes.held_bytes + self._out_memory_bytes
            self._has_unsent = size > 0
            memory.unsent(self, size, has_taken=has_taken)

    def _encode_some(self) -> bytes:
        """Returns the frames of the queued commands, or of as many of the first as fill the transport."""
        commands = self._queued_commands
        high = self._around.settings.write_high_bytes
        if self._out_wire_bytes <= high:
            self._drop_queued()
        else:
            count = wire_bytes = memory_bytes = 0
            while count < len(commands) and wire_bytes < high:
                sizes = _sizes(commands[count])
                wire_bytes, memory_bytes, count = wire_bytes + sizes[0], memory_bytes + sizes[1], count + 1
            self._queued_commands = commands[count:]
            commands = commands[:count]
            self._out_wire_bytes -= wire_bytes
            self._out_memory_bytes -= memory_bytes
        try:
            return encode_many(commands)
        except LocalProtocolError:  # of one of them; the others are other people's
            return b"".join([self._encode_or_refuse(command) for command in commands])

    def _encode_or_refuse(self, command: Command) -> bytes:
        """Encode a command. A response that cannot be sent becomes code 1; a request is left out, and its maker is
        told."""
        try:
            return encode(command)
        except LocalProtocolError as error:
            if command.is_response:
                return encode(command.response(ResponseCode.SYSTEM_ERROR, str(error)))
            if self._around.unsendable is not None:
                self._around.unsendable(self, command, error)
            return b""

    def _drop_queued(self) -> None:
        self._queued_commands = []
        self._out_wire_bytes = self._out_memory_bytes = 0

    def _drop_read(self) -> None:
        """Free what came of requests: the memory does not count it any more, and of thousands that end at once the
        last ones are there for long."""
        self._reader = FrameReader(self._forms)

    def _tell_unfinished(self, *, progress: bool) -> None:
        memory, size = self._around.memory, self._reader.buffered_bytes
        if isinstance(self._transport, TlsConnection):
            size += self._transport.held_bytes
        if memory is not None and self.alive and size != self._unfinished_bytes:
            self._unfinished_bytes = size
            memory.unfinished(self, size, progress=progress)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self.disconnected.clear()
        self._transport = transport
        if not self.alive:  # ended while connecting
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._around.settings.write_high_bytes)
        no_delay(transport)
        peer = peer_of(transport)
        if peer:
            self.peer, self.host = f"{peer[0]}:{peer[1]}", peer[0]
        self._around.opened(self)
        if isinstance(transport, TlsConnection):
            self.keep(CONNECTION_BYTES)
        self.flush()

    def eof_received(self) -> None:
        """A server's responses go out. A client gets none any more, and the peer may never take what is queued."""
        if self._around.reads_on:
            self.abort("the peer closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.disconnected.set()
        self._end(f"connection lost: {error}" if error else "the peer closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._around.arena.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._around.arena.received(nbytes, self, self.host)
        if not self.alive:
            return
        self.last_read = self.last_active = self._around.clock.now()
        had_some = self._reader.ready
        self._reader.put(data)
        if had_some and not self._around.reads_on:  # a loop may read many times before anybody has a turn
            self.wait()
        elif self._reader.ready:
            self._around.received(self)
        else:
            self._tell_unfinished(progress=False)

    def rest(self) -> None:
        """Read nothing more in this turn of the loop."""
        self._rests = True
        self._read_or_not()

    def read_on(self) -> None:
        """Read as ever."""
        self._rests = False
        self._read_or_not()

    def pause_writing(self) -> None:
        self._full = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._full = False
        self.flush()
        self._read_or_not()
        self._go_on()

    def _go_on(self) -> None:
        """Take what came while the link could not."""
        if self.ready:
            self._around.received(self)

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing() or self._around.reads_on:
            return
        if self._full or self._late_requests or self._awaits_turn or self._rests or not self.alive:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended, self.alive = True, False
            self._around.outbox.closed(self)
            self._drop_queued()
            if self._around.memory is not None:
                self._drop_read()
                self._around.memory.forget(self)
            self._around.closed(self, reason)


async def close_links(links: Sequence[Link], reason: str) -> None:
    """Close all at once. A peer that hangs takes nothing of what is queued: nobody waits for it as long as that."""
    for link in links:
        link.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            for link in links:
                await link.disconnected.wait()
    for link in links:
        link.abort(reason)


def _sizes(command: Command) -> tuple[int, int]:
    """Returns about how many bytes a command has on the wire, and in memory: a view shows bytes that are there
    anyway."""
    wire_bytes = memory_bytes = len(command.body) + _COMMAND_BYTES
    for part in command.parts:
        wire_bytes += len(part)
        if type(part) is not memoryview:
            memory_bytes += len(part)
    return wire_bytes, memory_bytes
