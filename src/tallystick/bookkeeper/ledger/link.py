"""One TCP connection to one bookie: requests leave once per loop tick, responses come in once per socket read.

Bytes that the peer does not take stay here as the parts that the caller gave, which may be shared with other links:
they are handed to the transport slice by slice, as the peer takes them. What bytes mean is the wire's; a frame has its
length in front of it in any protocol, in four bytes.

A link takes requests from the moment it exists, before it is connected. It ends once, for whatever reason; everything
that then has no response is reported as unknown, never as "no" (Q15): the bookie may have done it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast

from tallystick.bookkeeper.ledger.lanes import Lane
from tallystick.bookkeeper.ledger.outgoing import SLICE_BYTES, Outgoing, OutgoingPiece
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore
from tallystick.bookkeeper.ledger.owners import Owner, Waiter
from tallystick.bookkeeper.ledger.reports import Reports, UnansweredEntries
from tallystick.bookkeeper.ledger.response_buffers import ResponseBuffers
from tallystick.bookkeeper.ledger.running_time import BEAT_S, RunningTime
from tallystick.bookkeeper.ledger.wires import BookieRequest, WireFactory
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.codec.frames import next_frame
from tallystick.errors import BookieUnavailable, RemoteProtocolError, RequestTimeout, TallyError
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

READ_BUFFER_BYTES = 256 * 1024
OWN_BUFFER_BYTES = 64 * 1024  # a longer response is received into a buffer of its own, which its entries then share
MIN_TIMER_S = 0.005
MakeRequest = Callable[[], BookieRequest | None]

MAX_ABANDONED = 65_536  # requests timed out and still kept, for late responses; a peer with more of them is let go


class BookieLink(asyncio.BufferedProtocol):
    """See the module. ``ended`` is called once, with the reason, before anything outstanding is reported."""

    def __init__(
        self,
        bookie: BookieId,
        clock: Clock,
        events: Events,
        max_frame_bytes: int,
        ended: Callable[[BookieLink, str], None],
        wire_factory: WireFactory,
    ) -> None:
        self.bookie = bookie
        self.alive, self._end_reason = True, ""
        self.disconnected = asyncio.Event()  # set when there is no transport any more
        self.disconnected.set()
        self._time, self._events, self._max_frame, self._ended = RunningTime(clock), events, max_frame_bytes, ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outstanding: OutstandingCore[Owner] = OutstandingCore()
        self._out = Outgoing()
        self._gathered: list[Callable[[], None]] = []
        self._flush_scheduled = self._paused = False
        self._buffer = bytearray()  # of its size once there is a connection: many are tried and refused
        self._room = memoryview(self._buffer)  # all of it
        self._filled = 0
        self._large: memoryview | None = None  # the body of a long response, filled so far by:
        self._large_filled = 0
        self._long_buffers = ResponseBuffers()
        self._last_read_at, self._has_heard = self._time.now(), False
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._reports = Reports()
        self._wire = wire_factory(self._outstanding, self._reports.answered)

    # Requests

    def add_lane(self, ledger: LedgerId, number: int, owner: Owner) -> Lane[Owner]:
        return self._outstanding.lane(self._wire.adds_name(ledger, number), owner)

    def forget(self, lane: Lane[Owner]) -> None:
        self._outstanding.forget(lane)

    def send_adds(
        self, lane: Lane[Owner], entries: Sequence[EntryId], frames: Iterable[OutgoingPiece], timeout: float
    ) -> None:
        """``frames``: as ``ClientWire.adds`` has them. Pieces are kept as they are until the peer takes them."""
        deadline = self._outstanding.sent(lane, entries, self._time.now(), timeout)
        self._send(self._wire.adds(lane.about, entries, frames), deadline)

    @property
    def has_heard(self) -> bool:
        """Whether the bookie ever sent anything."""
        return self._has_heard

    @property
    def blocked(self) -> bool:
        """Whether bytes that are queued now stay for a while."""
        return self._transport is None or self._paused or self.queued_bytes - self.written_bytes > SLICE_BYTES

    @property
    def queued_bytes(self) -> int:
        """Bytes that were queued since the beginning."""
        return self._out.queued_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes that the transport got, since the beginning."""
        return self._out.written_bytes

    def when_written(self, position: int, callback: Callable[[], None]) -> None:
        """Call back once so many bytes have left the queue, or the link has ended. Positions must not descend."""
        self._out.when_written(position, callback)

    def add_read_lane(self, ledger: LedgerId, owner: Owner) -> Lane[Owner]:
        """Make a lane of plain reads; forget it when nobody waits any longer."""
        return self._outstanding.lane(self._wire.reads_name(ledger), owner)

    def send_reads(self, lane: Lane[Owner], ledger: LedgerId, entries: Sequence[EntryId], timeout: float) -> None:
        deadline = self._outstanding.sent(lane, entries, self._time.now(), timeout)
        self._send((self._wire.reads(lane.about, ledger, entries),), deadline)

    def gather(self, send: Callable[[], None]) -> None:
        """Call ``send`` before the bytes of this turn leave, or the link ends: it sends what was asked for until
        then."""
        self._gathered.append(send)
        self._schedule_flush()

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        for send in gathered:
            send()

    def ask(self, request: BookieRequest, timeout: float) -> Waiter:
        waiter = Waiter(loop=self._loop)
        self._ask(waiter, request, timeout)
        return waiter

    def ask_late(self, make: MakeRequest, timeout: float) -> Waiter:
        """Ask for what ``make`` returns once the peer takes it: no sooner, as it may not be true any more by then. If
        that is None, the waiter is cancelled."""
        waiter = Waiter(loop=self._loop)
        self._ask_late(waiter, make, timeout)
        return waiter

    def _ask_late(self, waiter: Waiter, make: MakeRequest, timeout: float) -> None:
        if waiter.done():
            return
        if not self.alive:
            waiter.failed([], BookieUnavailable(self._end_reason, bookie=self.bookie))
        elif self.blocked:
            self.when_written(self.queued_bytes, partial(self._ask_late, waiter, make, timeout))
        elif (request := make()) is None:
            waiter.cancel()
        else:
            self._ask(waiter, request, timeout)

    def _ask(self, waiter: Waiter, request: BookieRequest, timeout: float) -> None:
        key, piece = self._wire.request(request)
        self._send(
            (piece,), self._outstanding.add_request(key, request.entry, waiter, self._time.now(), timeout).deadline
        )

    def _send(self, pieces: Iterable[OutgoingPiece], deadline: float) -> None:
        for piece in pieces:
            self._out.put(piece)
        self._schedule_flush()
        if self._timer is None or deadline < self._wake_at:
            self._set_timer(deadline)

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._gathered:
            self._send_gathered()
        self._flush_scheduled = False
        while self._out and self._transport is not None and not self._paused and self.alive:
            parts = self._out.take().parts
            if len(parts) == 1:
                self._transport.write(parts[0])
            else:
                self._transport.writelines(parts)
        self._tell_written()

    def _tell_written(self) -> None:
        for callback in self._out.waiters(ended=not self.alive):
            self._loop.call_soon(callback)

    # Time

    def _set_timer(self, wake_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._time.now()
        delay_s = min(max(wake_at - now, MIN_TIMER_S), BEAT_S)
        self._wake_at = now + delay_s
        self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._time.beat(self._wake_at)
        try:
            self._expire()
        except Exception as error:
            self._broken(error)

    def _expire(self) -> None:
        expired = self._outstanding.expire(self._time.now())
        if expired:
            # Not one byte since the oldest request: the peer hangs or the path is cut. A new connection may do better,
            # and what was asked after it need not wait for its own time-out.
            silent = self._last_read_at <= expired.since
            self._lose(expired.entries, lambda: RequestTimeout("the bookie did not answer in time", bookie=self.bookie))
            if silent or self._outstanding.abandoned > MAX_ABANDONED:
                self.end("the bookie is silent" if silent else "the bookie left too many requests without answer")
                return
        wake_at = self._outstanding.wake_at()
        if wake_at is not None and self._timer is None and self.alive:
            self._set_timer(wake_at)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self.disconnected.clear()
        if not self.alive:  # ended while connecting
            transport.abort()
            return
        transport.set_write_buffer_limits(high=SLICE_BYTES)
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._room = memoryview(self._buffer)
        self._transport = transport  # no sign of life yet: a hanging process is still connected to by the kernel
        self._flush()

    def eof_received(self) -> None:
        """No response comes any more. A transport closes when its bytes are out, which the bookie may never take."""
        self.end("the bookie closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(f"connection lost: {exc}" if exc else "the bookie closed the connection")
        self.disconnected.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._room[self._filled : self._filled + self._wire.read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        if not self.alive:
            return
        self._last_read_at, self._has_heard = self._time.now(), True
        try:
            try:
                self._received(nbytes)
            finally:
                self._reports.tell(self._broken)  # what came in before the error is true
        except Exception as error:
            self._broken(error)

    def _received(self, nbytes: int) -> None:
        if self._large is None:
            self._read(self._filled + nbytes)
            return
        self._large_filled += nbytes
        if self._large_filled == len(self._large):
            body, self._large = self._large, None
            self._wire.take_response(body)

    # Responses

    def _read(self, end: int) -> None:
        buffer, position = self._buffer, 0
        while end - position >= 4:
            if (stop := self._wire.run(buffer, position, end)) > position:
                position = stop
                continue
            size = int.from_bytes(buffer[position : position + 4], "big")
            if size > self._max_frame:
                raise RemoteProtocolError("an answer is longer than the frame limit", bytes=size)
            bounds = next_frame(buffer, position, end)
            if bounds is None:
                break
            self._wire.take_response(bytes(memoryview(buffer)[bounds[0] : bounds[1]]))
            position = bounds[1]
        self._keep(position, end)

    def _keep(self, position: int, end: int) -> None:
        """Hold the rest of a read: the beginning of a frame."""
        rest = end - position
        if rest >= 4:
            size = int.from_bytes(self._buffer[position : position + 4], "big")
            if size > OWN_BUFFER_BYTES:
                self._large, self._large_filled = self._long_buffers.take(size), rest - 4
                self._large[: rest - 4] = memoryview(self._buffer)[position + 4 : end]
                rest = 0
        if rest and position:
            self._buffer[:rest] = self._buffer[position:end]
        self._filled = rest

    # The end

    def end(self, reason: str) -> None:
        """Stop for good; everything without a response is unknown."""
        if not self.alive:
            return
        self._send_gathered()  # what nobody has asked for yet would never be reported
        self.alive, self._end_reason = False, reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._ended(self, reason)
        self._long_buffers.close()
        self._out.clear()
        self._tell_written()
        unreported = self._reports.end()
        unanswered_entries = [*self._outstanding.take_all(), *unreported]
        self._lose(unanswered_entries, lambda: BookieUnavailable(reason, bookie=self.bookie))

    def _broken(self, error: Exception) -> None:
        """End the link after an error, the peer's or ours: no later response could be trusted."""
        if isinstance(error, RemoteProtocolError):
            kind, reason = "bookie broke the protocol", str(error)
        else:
            kind, reason = "bookie connection failed", repr(error)
        self._events.emit(kind, bookie=self.bookie, reason=reason)
        self.end(f"{kind}: {reason}")

    def _lose(self, unanswered_entries: Iterable[UnansweredEntries], error: Callable[[], TallyError]) -> None:
        self._reports.fail(unanswered_entries, error, self._owner_failed)

    def _owner_failed(self, error: Exception, entries: int) -> None:
        self._events.emit("failure not taken", bookie=self.bookie, reason=repr(error), entries=entries)

    def tell_all(self) -> None:
        """Report all failures at once: the loop may end."""
        self._reports.tell_all_failures(self._owner_failed)
