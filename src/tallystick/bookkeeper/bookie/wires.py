"""The protocols that a bookie speaks, and which of them a connection is in.

A connection begins with the beginning of a frame, and is served only when that says in which protocol::

    length 4 | 0x0A …        version 3: a protobuf with its header first
    length 4 | version …     version 2, and any that it refuses with BAD_VERSION

It stays in that protocol, but for one in version 3 that a frame of version 2 turns, for good: a client of version 2
that wants TLS begins so. A length that no frame may have is enough to be refused. A wire finds whole requests in bytes,
has the service do them, and encodes the responses.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from tallystick.bookkeeper.bookie.long_polls import Requester
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.service import NOW
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import RemoteProtocolError

RESPONSE_BYTES = 1024 * 1024  # one call ends after about so many: the peer takes them before more are made
SHORT_BYTES = 64 * 1024  # or after so many, and a batch has no more: but one entry always
RUN_BYTES = 256 * 1024  # that adds stored in one go take, or a longer one alone: of the shortest some milliseconds
RUN_LEDGERS = 256  # that adds stored in one go are of: each is some work of its own, the first add of a new one most
WAITING_LEDGERS = 256  # or when requests of so many ledgers wait for a look
LENGTH_BYTES = 4
BEGINNING_BYTES = LENGTH_BYTES + 1  # of a connection: they say in which protocol it is

V3_FIRST_BYTE = 0x0A


# Asks for a response that comes later: (owner, deliver). It is encoded when it comes.
Begin = Callable[[Requester, Callable[[bytes], None]], None]


@dataclass(slots=True)
class ServeResult:
    """The result of one call of a wire. All responses that wait for the disk leave with the last ``commit``, or with
    the last ``written_commit``."""

    position: int  # the first byte that was not used
    need: int = 0  # bytes from there that make another call worthwhile; 0: call again once the responses have left
    at_once: list[bytes] = field(default_factory=list)
    when_durable: list[bytes] = field(default_factory=list)
    commit: int = 0  # of the journal, with which the latter are durable
    when_written: list[bytes] = field(default_factory=list)  # of deferred adds
    written_commit: int = 0  # of the journal, with which the operating system has them
    refusal: RemoteProtocolError | None = None  # close the connection
    limit: int = RESPONSE_BYTES  # of the responses; what is over it waits for another call
    short: bool = False  # a batch keeps within it, too
    size: int = 0  # of the responses
    durable_size: int = 0  # of those that wait for the disk
    reads: bool = False  # something was read
    read_is_next: bool = False  # it ended before a read, because none was allowed
    to_look: dict[LedgerId, list[bytes]] = field(default_factory=dict)  # requests that wait for a look at their ledger
    waiting_ledgers: set[LedgerId] = field(default_factory=set)  # of these, and of those of earlier calls
    later: list[Begin] = field(default_factory=list)  # of requests that wait for something else
    next_wire: Wire | None = None  # serve what follows by this one from now on
    starts_tls: bool = False  # once the responses have left, all is encrypted

    @classmethod
    def bounded(cls, *, short: bool, behind: AbstractSet[LedgerId] = frozenset()) -> ServeResult:
        """Return the result of a call that has served nothing yet."""
        return cls(0, limit=SHORT_BYTES if short else RESPONSE_BYTES, short=short, waiting_ledgers=set(behind))

    def add_response(self, data: bytes, commit: int = NOW, *, deferred: bool = False) -> None:
        """Keep a response that is true with this commit; ``deferred``: when it is written, be it not synced."""
        self.size += len(data)
        if commit == NOW:
            self.at_once.append(data)
        elif deferred:
            self.durable_size += len(data)
            self.when_written.append(data)
            self.written_commit = max(self.written_commit, commit)
        else:
            self.durable_size += len(data)
            self.when_durable.append(data)
            if commit > self.commit:
                self.commit = commit

    @property
    def is_full(self) -> bool:
        """Whether the call should end."""
        return self.size >= self.limit or len(self.to_look) >= WAITING_LEDGERS

    def wait(self, ledger: LedgerId, frame: bytes) -> None:
        """Keep a request until its ledger was looked at."""
        self.to_look.setdefault(ledger, []).append(frame)
        self.waiting_ledgers.add(ledger)


class Wire(Protocol):
    """One protocol, for all connections that are in it."""

    def serve(
        self, data: bytes, *, reads: bool, short: bool, has_time: Callable[[], bool], behind: AbstractSet[LedgerId]
    ) -> ServeResult:
        """Answer the whole frames of ``data`` while it ``has_time``; without ``reads`` those before the first that
        reads. Adds of ledgers in ``behind`` wait for a look, as requests that came before them do.

        ``short`` answers to reads leave the rest for further calls, and that of a batch for further requests.
        """
        ...

    def settle(self, frames: bytes, verdict: Verdict, *, short: bool, has_time: Callable[[], bool]) -> ServeResult:
        """Answer requests that waited for a look with this verdict, the first of them in any case: bounded as
        ``serve`` is."""
        ...

    def is_read(self, data: bytes) -> bool:
        """Return whether a frame, or the first of several, is a read; at least its head is here."""
        ...


def whole_body(data: bytes, start: int, end: int, max_body: int, result: ServeResult) -> memoryview | None:
    """Return the body of the frame at ``start``; None if it is not whole: ``result`` says how much is needed.

    Raises RemoteProtocolError.
    """
    body = start + LENGTH_BYTES
    if end < body:
        result.need = LENGTH_BYTES
        return None
    size = int.from_bytes(data[start:body], "big")
    if size > max_body:  # before anything is buffered for it; a negative length is a huge one here
        raise RemoteProtocolError("a frame is longer than nettyMaxFrameSizeBytes allows", bytes=size)
    if end - body < size:
        result.need = LENGTH_BYTES + size
        return None
    return memoryview(data)[body : body + size]


def run_end(data: bytes, start: int, end: int, window: int) -> int:
    """Return up to where a run of adds is looked for: in the next ``window`` bytes, or in a frame that is longer."""
    frame_end = start + LENGTH_BYTES + int.from_bytes(data[start : start + LENGTH_BYTES], "big")
    return min(end, max(start + window, frame_end))


class Wires:
    """All protocols of a bookie. ``max_frame_bytes`` counts the length field."""

    def __init__(self, v2: Wire, v3: Wire, *, max_frame_bytes: int) -> None:
        self.v2, self.v3, self._max_body = v2, v3, max_frame_bytes - LENGTH_BYTES

    def spoken(self, beginning: bytes) -> Wire | None:
        """Return the wire of a connection that begins so, with ``LENGTH_BYTES`` at least; None if it takes more."""
        if not 0 < int.from_bytes(beginning[:LENGTH_BYTES], "big") <= self._max_body:
            return self.v2
        if len(beginning) < BEGINNING_BYTES:
            return None
        return self.v3 if beginning[LENGTH_BYTES] == V3_FIRST_BYTE else self.v2
