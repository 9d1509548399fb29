"""One connection to a bookie: received bytes go to its wire, responses to the socket, both bounded.

It is served when its first bytes have said which wire that is.
A peer that does not take its responses is not read; one that sends half a frame costs that half and no more. The server
bounds what all connections hold together, and gives them their turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Concatenate, ParamSpec, cast

from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.crowd import Crowd
from tallystick.bookkeeper.bookie.handshakes import Handshakes
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.looks import Looks
from tallystick.bookkeeper.bookie.session_handshake import SessionHandshake
from tallystick.bookkeeper.bookie.turns import TURN_S, Kind, TurnsCore
from tallystick.bookkeeper.bookie.unserved_requests import UnservedRequests
from tallystick.bookkeeper.bookie.wires import BEGINNING_BYTES, LENGTH_BYTES, ServeResult, Wire, Wires
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import RemoteProtocolError
from tallystick.runtime.network import no_delay
from tallystick.runtime.peers import peer_of
from tallystick.runtime.tls import CONNECTION_BYTES
from tallystick.runtime.unsent_writes import UnsentWrites

WRITE_HIGH_BYTES = 1024 * 1024
ADD_RESPONSE_BYTES = 28  # or about so many: of a response that waits for a look

_LITTLE_BYTES = 16 * 1024  # unsent: not worth counting; a loop may send them only at the end of its turn
_SMALL_BYTES = 4096  # responses of fewer, on average, are one write: a loop holds objects for each
_SETTLED_AT_ONCE = 512  # requests that waited for one look, at most
WAITING_BYTES = 2048  # that these take beside their responses: they, and a ledger's places in the tables of looks
_ACKS_BYTES = 64 * 1024  # fewer bytes of responses that wait for the disk are acks, bounded with their adds

P = ParamSpec("P")


@dataclass(frozen=True)
class SessionContext:
    """What a bookie's connections share."""

    wires: Wires
    committer: Committer
    turns: TurnsCore[Session]
    crowd: Crowd
    looks: Looks
    handshakes: Handshakes | None = None  # that come before requests; None: nobody has to show who it is


@dataclass(slots=True, eq=False)
class _Batch:
    """Requests that wait for a look at their ledger; they and their responses count as ``size`` bytes."""

    wire: Wire
    ledger: LedgerId
    frames: bytes
    size: int


def _alone(method: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
    """Make a method of which a fault ends its connection, and not what calls those of many connections."""

    @wraps(method)
    def bounded(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(session, *args, **kwargs)
        except Exception as error:
            session.fail(error)

    return bounded


class Session(asyncio.BufferedProtocol):
    def __init__(self, around: SessionContext) -> None:
        self._around, self._crowd, self._turns = around, around.crowd, around.turns
        self._loop = asyncio.get_running_loop()
        self._unserved, self._wires = UnservedRequests(), around.wires
        self._handshake: SessionHandshake | None = None
        self._held_bytes = 0  # bytes of responses that wait for the disk
        self._waiting: dict[LedgerId, list[_Batch]] = {}  # for looks, in the order in which they came
        self._kept_bytes = 0  # bytes that the crowd was told of
        self._has_served = False  # a request, since then
        self.has_asked = False  # a whole request ever came
        self._writes = UnsentWrites()
        self._unsent_bytes = 0  # that the crowd was told of
        self._is_forgotten = False  # it has ended, or was aborted
        self._unsent = False  # the peer does not take its responses
        self._congested = False  # too much waits for the disk
        self._rests = False  # much was read in this turn of the loop
        self._waits = False  # for one of the next turns
        self._reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        no_delay(transport)
        peer = peer_of(transport)
        self.peer = peer[0] if peer else "unknown"
        self._crowd.opened(self)
        if self._around.handshakes is not None and not self._transport.is_closing():
            self._begin_handshake(self._around.handshakes)

    def connection_lost(self, error: Exception | None) -> None:
        try:
            if self._handshake is not None:
                self._handshake.end()
            self._forget()
        finally:
            self._crowd.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._crowd.buffer

    @_alone
    def buffer_updated(self, nbytes: int) -> None:
        self._unserved.add(self._crowd.received(nbytes, self))
        self._pump()

    def rest(self) -> None:
        """Read nothing more in this turn of the loop."""
        self._rests = True

    def read_on(self) -> None:
        """Read as ever."""
        self._rests = False
        self._watch_flow()

    def eof_received(self) -> None:
        """Nothing more will come; the transport closes when its responses are out."""

    def pause_writing(self) -> None:
        self._unsent = True
        self._watch_flow()

    @_alone
    def resume_writing(self) -> None:
        self._unsent = False
        self.look()
        self._pump()

    @_alone
    def resume(self) -> None:
        self._congested = False
        self._pump()

    @_alone
    def deliver(self, responses: Sequence[bytes]) -> None:
        size = sum(map(len, responses))
        self._held_bytes -= size
        if not self._transport.is_closing():
            self._write(responses, size)
            self._pump()

    def abort(self) -> None:
        try:
            self._forget()
        finally:
            self._transport.abort()

    @property
    def is_revoked(self) -> bool:
        """Whether its peer would not come in any more as it did."""
        return self._handshake is not None and self._handshake.is_revoked

    @property
    def gone(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closing()

    def fail(self, error: Exception) -> None:
        """End this connection for a fault of ours in serving it."""
        self._crowd.failed(self.peer, error)
        self.abort()

    def look(self, written: int = 0) -> None:
        """Measure how much is held of what the peer has not taken yet: also while the connection closes, which it does
        when all is taken."""
        if self._is_forgotten:
            return
        if written:
            self._writes.wrote(written)
        has_taken = self._writes.look(self._transport.get_write_buffer_size())
        held_bytes = self._writes.held_bytes
        if held_bytes < _LITTLE_BYTES:
            held_bytes = 0
        if held_bytes or self._unsent_bytes:
            self._unsent_bytes = held_bytes
            self._crowd.unsent(self, held_bytes, has_taken)

    def _forget(self) -> None:
        """Drop what was received; nothing is held of it any more."""
        self._is_forgotten = True
        self._unserved.clear()
        self._waiting.clear()
        self._kept_bytes = self._unsent_bytes = 0
        self._writes.clear()
        self._crowd.forget(self)

    def _account(self) -> None:
        kept_bytes = self._unserved.size + (self._held_bytes if self._held_bytes > _ACKS_BYTES else 0)
        if self._handshake is not None:
            kept_bytes += self._handshake.held_bytes
        if kept_bytes != self._kept_bytes and not self._is_forgotten:
            self._kept_bytes = kept_bytes
            self._crowd.unfinished(self, kept_bytes, self._has_served)
        self._has_served = False

    def _write(self, responses: Sequence[bytes], size: int) -> None:
        if len(responses) > 1 and size < len(responses) * _SMALL_BYTES:
            responses = [b"".join(responses)]
        self._transport.writelines(responses)
        self.look(size)

    @property
    def _blocked(self) -> bool:
        if self._unsent or self._congested or self._waits or self._held_bytes >= WRITE_HIGH_BYTES:
            return True
        # Who waits for no look is served; who waits for one goes on when that was made.
        return bool(self._waiting) and not self._around.looks.has_room(0)

    @_alone
    def go_on(self, kind: Kind) -> None:
        """Serve in this turn, which has time for it."""
        self._waits = False
        self._pump(kind)

    def _pump(self, turn: Kind | None = None) -> None:
        """Serve what there is, one bounded call a turn, unless something stands in the way."""
        unserved = self._unserved
        if unserved.is_due and not self._blocked and (wire := unserved.wire or self._begin()) is not None:
            kind = _kind(wire, unserved.head) if turn is None else turn
            if turn is not None or self._turns.admits(kind):
                self._serve(wire, kind)
            else:
                self._wait(kind)
        self._account()
        self._watch_flow()

    def _begin(self) -> Wire | None:
        """Find the wire by the first bytes. Returns None if more are needed, or if the connection must end."""
        if self._transport.is_closing():
            return None
        wire = self._wires.spoken(self._unserved.next())
        self._unserved.need = LENGTH_BYTES if wire else BEGINNING_BYTES
        if wire is not None:
            self._unserved.turn_to(wire)
        return wire

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._unserved.clear()
        self._crowd.refused(self.peer, error)
        self._transport.close()

    def _wait(self, kind: Kind) -> None:
        self._waits = True
        self._crowd.wait(self, kind)

    def _serve(self, wire: Wire, kind: Kind) -> None:
        """Serve what there is in the time of one kind of work; reads also where their own kind has time."""
        if self._transport.is_closing():
            return
        unserved, began = self._unserved, self._loop.time()
        reads = kind is Kind.READ or self._turns.admits(Kind.READ)
        result = wire.serve(
            unserved.next(),
            reads=reads,
            short=self._crowd.short,
            has_time=lambda: self._loop.time() < began + TURN_S,
            behind=self._waiting.keys(),
        )
        unserved.served(result.position, result.need)
        self._has_served = result.position > 0
        if result.next_wire is not None:
            unserved.turn_to(result.next_wire)
            if self._handshake is not None:
                self._handshake.end()
        self._held_bytes += result.durable_size
        self._hold(result)
        for ledger, frames in result.to_look.items():
            self._look(wire, ledger, frames)
        if result.at_once:
            self._write(result.at_once, result.size - result.durable_size)
        took_s = self._loop.time() - began  # also to let hundreds of requests wait for looks
        if self._has_served:
            self.has_asked = self._handshake is None or self._handshake.is_over
        # Adds that were taken for a read count as that: nobody has more of a turn than its kind may take.
        self._turns.spent(Kind.READ if result.reads else kind, took_s, self, self.peer)
        if result.refusal is not None:
            self._refuse(result.refusal)
        elif result.starts_tls:
            self._start_tls()
        elif self._around.committer.congested:
            self._congested = True
            self._around.committer.block(self)
        elif unserved.is_due:
            self._wait(Kind.READ if result.read_is_next else Kind.ADD)

    # The handshake, and what is encrypted.

    def _begin_handshake(self, handshakes: Handshakes) -> None:
        self._handshake = SessionHandshake(handshakes, self.peer, self._too_late)
        if self._handshake.wire is None:
            self._refuse(RemoteProtocolError("so many connections of this host have not shown who they are"))
        else:
            self._unserved.turn_to(self._handshake.wire)

    def _too_late(self) -> None:
        self._crowd.refused(self.peer, RemoteProtocolError("the peer did not show in time who it is"))
        self.abort()

    def _start_tls(self) -> None:
        """Go on encrypted: what came and is not served is the beginning of that."""
        assert self._handshake is not None, "it served START_TLS"
        records, self._unserved = self._unserved.next(), UnservedRequests()
        self._transport = tls = self._handshake.encrypt(self._transport, self, self._encrypted)
        self._crowd.remembers(self, CONNECTION_BYTES)
        tls.begin(records)

    @_alone
    def _encrypted(self, error: Exception | None) -> None:
        """TLS's own handshake is over; ``error``: what stood in its way."""
        if self._handshake is None or self._handshake.wire is None or self._handshake.is_over:
            return
        if error is not None:
            self._crowd.refused(self.peer, RemoteProtocolError(f"no TLS: {error}"))
            self.abort()
            return
        result = self._handshake.encrypted()
        if (wires := self._handshake.wires) is not None:  # the certificate says who it is
            self._wires = wires
            self._handshake.end()
        else:
            self._unserved.turn_to(self._handshake.wire)
        if result.at_once:
            self._write(result.at_once, result.size)
        if result.refusal is not None:
            self._refuse(result.refusal)

    def _hold(self, result: ServeResult) -> None:
        """Keep what is to wait: responses for their commit, requests for what answers them."""
        if result.when_durable:
            self._around.committer.hold(self, result.when_durable, result.commit)
        if result.when_written:
            self._around.committer.hold_until_written(self, result.when_written, result.written_commit)
        if not result.later:
            return
        here, waits = list[bytes](), False

        def come(response: bytes) -> None:
            if not waits:  # it leaves with the others
                here.append(response)
            elif not self._transport.is_closing():
                self._held_bytes += len(response)
                self.deliver([response])

        for begin in result.later:
            begin(self, come)
        waits = True
        for response in here:
            result.add_response(response)
        here.clear()  # what waits for long keeps nothing of this

    def _look(self, wire: Wire, ledger: LedgerId, requests: list[bytes]) -> None:
        """Serve these when their ledger was looked at, some at a time."""
        for start in range(0, len(requests), _SETTLED_AT_ONCE):
            self._settle_after_look(wire, ledger, requests[start : start + _SETTLED_AT_ONCE])

    def _settle_after_look(self, wire: Wire, ledger: LedgerId, requests: list[bytes]) -> None:
        """Until then they and their responses count as held."""
        batch = _Batch(wire, ledger, b"".join(requests), WAITING_BYTES + len(requests) * ADD_RESPONSE_BYTES)
        self._held_bytes += batch.size
        self._waiting.setdefault(ledger, []).append(batch)
        go_on = partial(self._settle, batch)  # not a function in here: it has fewer objects
        adds = not all(wire.is_read(frame) for frame in requests)
        self._around.looks.hold(ledger, len(batch.frames), go_on, adds=adds, who=self, host=self.peer)

    @_alone
    def _settle(self, batch: _Batch, verdict: Verdict) -> None:
        """Serve what waited for a look, for a turn's time.

        The rest, and what waits behind it for the same ledger, comes before all else that is not served yet, as if it
        came now: it has turns, and is looked at again if it must be, as a verdict says nothing of what is later.
        """
        if self._transport.is_closing() or batch not in self._waiting.get(batch.ledger, ()):
            return  # it went back behind what waited before it
        self._release(batch)
        wire, frames, position, responses = batch.wire, batch.frames, 0, list[bytes]()
        if not (self._unsent or self._unserved.has_returned):
            began = self._loop.time()
            result = wire.settle(
                frames, verdict, short=self._crowd.short, has_time=lambda: self._loop.time() < began + TURN_S
            )
            took_s = self._loop.time() - began
            self._turns.spent(Kind.READ if result.reads else Kind.ADD, took_s, self, self.peer)
            self._hold(result)
            self._held_bytes += result.size
            self._has_served, position, responses = True, result.position, result.at_once
        if position < len(frames):
            self._put_back(batch, position)
        if responses:
            self.deliver(responses)
        else:
            self._pump()

    def _release(self, batch: _Batch) -> None:
        """It waits for its look no more, and counts as held no more."""
        waiting = self._waiting[batch.ledger]
        waiting.remove(batch)
        if not waiting:
            del self._waiting[batch.ledger]
        self._held_bytes -= batch.size

    def _put_back(self, batch: _Batch, position: int) -> None:
        """Serve the rest of it later, and then what came after it, or a look would let that go on before it."""
        self._unserved.put_back(batch.wire, batch.frames[position:])
        for later in tuple(self._waiting.get(batch.ledger, ())):
            self._release(later)
            self._unserved.put_back(later.wire, later.frames)
        if not self._waits:
            self._wait(_kind(batch.wire, self._unserved.head))

    def _watch_flow(self) -> None:
        wants_reading = not (self._blocked or self._rests)
        if wants_reading == self._reading or self._transport.is_closing():
            return
        self._reading = wants_reading
        if wants_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _kind(wire: Wire, data: bytes) -> Kind:
    return Kind.READ if wire.is_read(data) else Kind.ADD
