"""One TCP connection to one bookie: frames out once per loop tick, answers in once per socket read.

What the peer does not take stays here as the parts that the caller gave, which may be shared with other links: it is
handed to the transport slice by slice, as the peer takes it.

A link takes questions from the moment it exists, before it is connected. It ends once, for whatever reason; everything
that then has no answer is reported as unknown, never as "no" (Q15): the bookie may have done it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from tallystick.bookkeeper.ledger.lanes import Lane
from tallystick.bookkeeper.ledger.outgoing import SLICE_BYTES, Outgoing, Piece
from tallystick.bookkeeper.ledger.outstanding import Expired, Key, Outstanding
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.running_time import BEAT_S, RunningTime
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.codec.frames import PLAIN_ADD, next_frame, scan_acks
from tallystick.codec.reads import PLAIN_READ, encode_reads, scan_reads
from tallystick.errors import BookieUnavailable, RemoteProtocolError, RequestTimeout, TallyError
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

READ_BUFFER_BYTES = 256 * 1024
OWN_BUFFER_BYTES = 64 * 1024  # a longer answer is received into a buffer of its own, which its entries then share
MIN_TIMER_S = 0.005
OWNERS_A_TURN = 128  # channels that hear of an answer or a failure before the loop goes on
_HEAD = struct.Struct(">4xI4xq8x")  # of an answer: header word and ledger; no shorter answer belongs to a lane
_ADD, _READ = int(v2.Op.ADD), int(v2.Op.READ)  # plain numbers: what keys of thousands of ledgers hold is no object
MAX_ABANDONED = 65_536  # timed out and still kept, because an answer may come; a peer that never answers them is let go


class AddOwner(Protocol):
    """Who hears about the ADDs of a lane: all entries of one socket read or failure at once."""

    def acked(self, entries: list[EntryId]) -> None: ...

    def refused(self, entries: list[EntryId], code: Code) -> None: ...

    def lost(self, entries: list[EntryId], error: TallyError) -> None: ...


Answered = v2.Answer | v2.BatchAnswer
Waiter = asyncio.Future[Answered]
Owner = AddOwner | ReadRun | Waiter


class Link(asyncio.BufferedProtocol):
    """See the module. ``ended`` is called once, with the reason, before anything outstanding is reported."""

    def __init__(
        self, bookie: BookieId, clock: Clock, events: Events, max_frame_bytes: int, ended: Callable[[Link, str], None]
    ) -> None:
        self.bookie = bookie
        self.alive = True
        self.gone = asyncio.Event()  # set when there is no transport any more
        self.gone.set()
        self._time, self._events, self._max_frame, self._ended = RunningTime(clock), events, max_frame_bytes, ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outstanding: Outstanding[Owner] = Outstanding()
        self._out = Outgoing()
        self._flush_scheduled = self._paused = False
        self._buffer = bytearray()  # of its size once there is a connection: many are tried and refused
        self._filled = 0
        self._large: bytearray | None = None  # the body of a long answer, filled so far by:
        self._large_filled = 0
        self._heard = self._time.now()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._reports: deque[tuple[AddOwner, Code, list[EntryId]]] = deque()
        self._report_scheduled = False
        self._failures: deque[tuple[AddOwner | ReadRun, list[EntryId], TallyError]] = deque()

    # Questions

    def add_lane(self, ledger: LedgerId, owner: AddOwner) -> Lane[Owner]:
        return self._outstanding.lane((_ADD, ledger), owner)

    def forget(self, lane: Lane[Owner]) -> None:
        self._outstanding.forget(lane)

    def send_adds(self, lane: Lane[Owner], entries: Sequence[EntryId], frames: Iterable[Piece], timeout: float) -> None:
        """``frames``: whole ones, in any number of pieces, which are kept as they are until the peer takes them."""
        self._send(frames, self._outstanding.sent(lane, entries, self._time.now(), timeout))

    @property
    def blocked(self) -> bool:
        """What is queued now will stay for a while."""
        return self._transport is None or self._paused or self.queued - self.written > SLICE_BYTES

    @property
    def queued(self) -> int:
        """Bytes since the beginning."""
        return self._out.queued

    @property
    def written(self) -> int:
        """Bytes that the transport got, since the beginning."""
        return self._out.written

    def when_written(self, position: int, callback: Callable[[], None]) -> None:
        """Call back once so many bytes have left the queue, or the link has ended. Positions must not descend."""
        self._out.when_written(position, callback)

    def send_reads(self, ledger: LedgerId, run: ReadRun, timeout: float) -> None:
        lane = self._outstanding.lane((_READ, ledger), run)
        run.leave = lambda: self.forget(lane)
        deadline = self._outstanding.sent(lane, run.entries, self._time.now(), timeout)
        self._send((Piece.of(encode_reads(ledger, run.entries)),), deadline)

    def ask(self, key: Key, frame: bytes, timeout: float) -> Waiter:
        """The answer comes through the future; cancelling it gives the question up."""
        waiter: Waiter = self._loop.create_future()
        self._send((Piece.of(frame),), self._outstanding.ask(key, waiter, self._time.now(), timeout).deadline)
        return waiter

    def _send(self, pieces: Iterable[Piece], deadline: float) -> None:
        for piece in pieces:
            self._out.put(piece)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        if self._timer is None or deadline < self._wake_at:
            self._set_timer(deadline)

    def _flush(self) -> None:
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
            # Not one byte since the oldest question: the peer hangs or the path is cut. A new connection may do better,
            # and what was asked after it need not wait for its own time-out.
            silent = self._heard <= expired.since
            self._fail(expired, lambda: RequestTimeout("the bookie did not answer in time", bookie=self.bookie))
            if silent or self._outstanding.abandoned > MAX_ABANDONED:
                self.end("the bookie is silent" if silent else "the bookie left too many requests without answer")
                return
        wake_at = self._outstanding.wake_at()
        if wake_at is not None and self._timer is None and self.alive:
            self._set_timer(wake_at)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self.gone.clear()
        if not self.alive:  # ended while connecting
            transport.abort()
            return
        transport.set_write_buffer_limits(high=SLICE_BYTES)
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._transport = transport  # no sign of life yet: a hanging process is still connected to by the kernel
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(f"connection lost: {exc}" if exc else "the bookie closed the connection")
        self.gone.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._large_filled :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if not self.alive:
            return
        self._heard = self._time.now()
        try:
            try:
                self._received(nbytes)
            finally:
                if not self._report_scheduled:
                    self._report_some()  # what came in before the error is true
        except Exception as error:
            self._broken(error)

    def _received(self, nbytes: int) -> None:
        if self._large is None:
            self._read(self._filled + nbytes)
            return
        self._large_filled += nbytes
        if self._large_filled == len(self._large):
            body, self._large = self._large, None
            self._answer(body)

    # Answers

    def _read(self, end: int) -> None:
        buffer, position = self._buffer, 0
        while end - position >= 4:
            if (stop := self._run(position, end)) > position:
                position = stop
                continue
            size = int.from_bytes(buffer[position : position + 4], "big")
            if size > self._max_frame:
                raise RemoteProtocolError("an answer is longer than the frame limit", bytes=size)
            bounds = next_frame(buffer, position, end)
            if bounds is None:
                break
            self._answer(bytes(memoryview(buffer)[bounds[0] : bounds[1]]))
            position = bounds[1]
        self._keep(position, end)

    def _run(self, position: int, end: int) -> int:
        """Take a run of good answers to lanes; where it ends."""
        if end - position < _HEAD.size:
            return position
        word, ledger = _HEAD.unpack_from(self._buffer, position)
        if word == PLAIN_ADD and self._outstanding.has_lanes((v2.Op.ADD, ledger)):
            entries, position = scan_acks(self._buffer, position, end, ledger)
            self._settle_run(v2.Op.ADD, ledger, entries, ())
        elif word == PLAIN_READ and self._outstanding.has_lanes((v2.Op.READ, ledger)):
            entries, data, position = scan_reads(self._buffer, position, end, ledger)
            self._settle_run(v2.Op.READ, ledger, entries, data)
        return position

    def _keep(self, position: int, end: int) -> None:
        """Hold what is left of a read: the beginning of a frame."""
        rest = end - position
        if rest >= 4:
            size = int.from_bytes(self._buffer[position : position + 4], "big")
            if size > OWN_BUFFER_BYTES:
                self._large, self._large_filled = bytearray(size), rest - 4
                self._large[: rest - 4] = memoryview(self._buffer)[position + 4 : end]
                rest = 0
        if rest and position:
            self._buffer[:rest] = self._buffer[position:end]
        self._filled = rest

    def _settle_run(self, op: v2.Op, ledger: LedgerId, entries: list[EntryId], data: Sequence[v2.Buffer]) -> None:
        def report(owner: Owner, start: int, stop: int) -> None:
            if isinstance(owner, ReadRun):
                owner.received(entries[start:stop], data[start:stop])
            elif not isinstance(owner, asyncio.Future):
                self._collect(owner, Code.OK, entries[start:stop])

        at = 0
        while at < len(entries):
            at = self._outstanding.answered_run((op, ledger), entries, report, at)
            if at < len(entries):
                # Not of a lane: then somebody asked for this one alone, or nobody did.
                answer = v2.Answer(op, Code.OK, ledger, entries[at], memoryview(data[at] if data else b""))
                self._settle((op, ledger, entries[at]), answer)
                at += 1

    def _collect(self, owner: AddOwner, code: Code, entries: list[EntryId]) -> None:
        if self._reports and self._reports[-1][0] is owner and self._reports[-1][1] == code:
            self._reports[-1][2].extend(entries)
        else:
            self._reports.append((owner, code, entries))

    def _report_some(self) -> None:
        """Some in each turn of the loop: one read may have the acks of thousands of ledgers."""
        self._report_scheduled = False
        self._report(OWNERS_A_TURN)
        if self._reports:
            self._report_scheduled = True
            self._loop.call_soon(self._report_rest)

    def _report_rest(self) -> None:
        try:
            self._report_some()
        except Exception as error:
            self._broken(error)

    def _report(self, count: int) -> None:
        while self._reports and count:
            count -= 1
            owner, code, entries = report = self._reports.popleft()
            try:
                if code == Code.OK:
                    owner.acked(entries)
                else:
                    owner.refused(entries, code)
            except Exception:
                self._reports.appendleft(report)  # they left their lane: only ``end`` can still tell their owner
                raise

    def _answer(self, body: bytes | bytearray) -> None:
        answer = v2.decode_answer(body)
        if isinstance(answer, v2.Answer):
            lane = self._outstanding.answered_in_lane((answer.op, answer.ledger), answer.entry)
            if lane is None:
                self._settle((answer.op, answer.ledger, answer.entry), answer)
            elif isinstance(lane.owner, ReadRun):
                if answer.code == Code.OK:
                    lane.owner.received([answer.entry], [answer.entry_bytes])
                else:
                    lane.owner.refused([answer.entry], answer.code)
            elif lane.owner is not None and not isinstance(lane.owner, asyncio.Future):
                self._collect(lane.owner, answer.code, [answer.entry])
        elif isinstance(answer, v2.BatchAnswer):
            self._settle((v2.Op.BATCH_READ, answer.ledger, answer.request_id), answer)
        else:
            raise RemoteProtocolError("an authentication message that nobody asked for")

    def _settle(self, key: Key, answer: Answered) -> None:
        question = self._outstanding.answered(key)
        if question is None:
            raise RemoteProtocolError("an answer that nobody asked for", op=key[0], ledger=key[1], entry=key[2])
        waiter = question.owner
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            waiter.set_result(answer)

    # The end

    def end(self, reason: str) -> None:
        """Stop for good; everything without an answer is unknown."""
        if not self.alive:
            return
        self.alive = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._ended(self, reason)
        self._out.clear()
        self._tell_written()
        if self._report_scheduled:  # these acks came before the end
            with contextlib.suppress(Exception):
                self._report(len(self._reports))
        unanswered = self._outstanding.take_all()
        unanswered.entries += [(owner, entries) for owner, _, entries in self._reports]
        self._reports.clear()
        self._fail(unanswered, lambda: BookieUnavailable(reason, bookie=self.bookie))

    def _broken(self, error: Exception) -> None:
        """The peer's fault or ours: no later answer could be trusted, and nobody may wait for ever."""
        if isinstance(error, RemoteProtocolError):
            kind, reason = "bookie broke the protocol", str(error)
        else:
            kind, reason = "bookie connection failed", repr(error)
        self._events.emit(kind, bookie=self.bookie, reason=reason)
        self.end(f"{kind}: {reason}")

    def _fail(self, expired: Expired[Owner], error: Callable[[], TallyError]) -> None:
        for waiter in expired.questions:
            if isinstance(waiter, asyncio.Future) and not waiter.done():
                waiter.set_exception(error())
        is_under_way = bool(self._failures)
        for owner, entries in expired.entries:
            if not isinstance(owner, asyncio.Future):
                self._failures.append((owner, entries, error()))
        if not is_under_way:
            self._tell_failures()

    def _tell_failures(self) -> None:
        """Some in each turn of the loop: thousands of ledgers may have been written over one connection."""
        for _ in range(min(len(self._failures), OWNERS_A_TURN)):
            owner, entries, error = self._failures.popleft()
            try:
                owner.lost(entries, error)
            except Exception as failed:  # the others must hear of theirs all the same
                self._events.emit("failure not taken", bookie=self.bookie, reason=repr(failed), entries=len(entries))
        if self._failures:
            self._loop.call_soon(self._tell_failures)

    def tell_all(self) -> None:
        """Everybody hears now what failed: the loop may end."""
        while self._failures:
            self._tell_failures()
