"""The protocol of a connection to a bookie: it makes bytes of requests, and reports of the bytes of responses.

A wire is one protocol on one connection. It names requests by numbers, by which ``OutstandingCore`` finds who waits,
and until when: in a protocol whose responses bear the number of their request that is the name; in version 2 it is what
the request is about. Requests and responses are values of no protocol, so that their owners know none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from tallystick.bookkeeper.ledger.lanes import LaneName
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore, RequestKey
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.frames import Buffer


@dataclass(slots=True)
class ReadRequest:
    """One entry, -1 for the highest stored; with a master key the ledger is fenced before it is looked for."""

    ledger: LedgerId
    entry: EntryId
    master_key: bytes | None = field(default=None, repr=False)
    high_priority: bool = False


@dataclass(slots=True)
class BatchRequest:
    """Entries from ``entry`` on: as many as fit, one at least."""

    ledger: LedgerId
    entry: EntryId
    max_count: int
    max_bytes: int


@dataclass(slots=True)
class LongPollRequest:
    """Wait until a ledger's LAC is beyond ``previous_lac``, or until ``timeout_ms`` is over.

    Its response has the LAC that the bookie knows then (``unpack_lac``), and behind it the entry after
    ``previous_lac``, if the LAC has come so far and the bookie has it.
    """

    ledger: LedgerId
    previous_lac: EntryId
    timeout_ms: int

    @property
    def entry(self) -> EntryId:
        return self.previous_lac + 1


@dataclass(slots=True)
class WriteLacRequest:
    """Tell a bookie the LAC of a ledger; ``body`` is ledger, LAC and their digest."""

    ledger: LedgerId
    lac: EntryId
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def entry(self) -> EntryId:
        return self.lac


@dataclass(slots=True)
class ReadLacRequest:
    """Ask how far a ledger goes. Its response has two parts, which may be empty: the newest ``WriteLacRequest.body``,
    and the highest entry stored."""

    ledger: LedgerId
    entry: ClassVar[EntryId] = NO_ENTRY


@dataclass(slots=True)
class ForceRequest:
    """Make all adds of a ledger durable that were acknowledged before."""

    ledger: LedgerId
    entry: ClassVar[EntryId] = NO_ENTRY


@dataclass(slots=True)
class EntryListRequest:
    """Ask which entries of a ledger there are. Its response has one part (``EntryList.decode``)."""

    ledger: LedgerId
    entry: ClassVar[EntryId] = NO_ENTRY


@dataclass(slots=True)
class SpaceRequest:
    """Ask for the bytes of a bookie's disks. Its response has one part: total and free bytes (``SPACE``).

    ``as_administrator``: it is refused to who is none."""

    as_administrator: bool = False

    ledger: ClassVar[LedgerId] = -1
    entry: ClassVar[EntryId] = NO_ENTRY


BookieRequest = (
    ReadRequest
    | BatchRequest
    | LongPollRequest
    | WriteLacRequest
    | ReadLacRequest
    | ForceRequest
    | EntryListRequest
    | SpaceRequest
)
SPACE = struct.Struct(">qq")
MOST_AT_ONCE = 1 << 20  # requests of a lane that are sent together: version 3 has no more numbers for them
_LAC = struct.Struct(">q")


def pack_lac(lac: EntryId) -> bytes:
    """Return the first part of the response to a long poll."""
    return _LAC.pack(lac)


def unpack_lac(part: Buffer) -> EntryId:
    """Return the LAC in the first part of the response to a long poll."""
    (lac,) = _LAC.unpack(part)
    return int(lac)


ReportResponse = Callable[[Owner, Code, list[EntryId], Sequence[Buffer]], None]  # see Reports.answered


class ClientWire(Protocol):
    """One protocol. It settles and reports requests when their responses come; the connection sends them, and reports
    those that are overdue or without a response at its end."""

    @property
    def read_bytes(self) -> int:
        """As many bytes are taken from the socket before the loop goes on: some ms of short responses."""
        ...

    def adds_name(self, ledger: LedgerId, number: int) -> LaneName:
        """Name a new lane of adds. Lanes of one name share their responses, the oldest one first. ``number`` is that
        of no other lane of this connection; those of one ledger to several bookies have the same."""
        ...

    def reads_name(self, ledger: LedgerId) -> LaneName:
        """Name a new lane of plain reads."""
        ...

    def adds(
        self, about: LaneName, entries: Sequence[EntryId], frames: Iterable[OutgoingPiece]
    ) -> Iterable[OutgoingPiece]:
        """Encode a lane's next requests, ``MOST_AT_ONCE`` at most.

        ``frames`` are an ADD of version 2 for each entry, made once for all bookies (``encode_adds``), in any number
        of pieces, which are not to be changed. They have all that another protocol needs to make a head of its own.
        """
        ...

    def reads(self, about: LaneName, ledger: LedgerId, entries: Sequence[EntryId]) -> OutgoingPiece:
        """Encode a lane's next requests, ``MOST_AT_ONCE`` at most."""
        ...

    def request(self, request: BookieRequest) -> tuple[RequestKey, OutgoingPiece]:
        """Name and encode a lone request."""
        ...

    def run(self, buffer: bytearray, start: int, end: int) -> int:
        """Take responses that come in a row, at once. Returns the place behind them; ``start`` if there is none:
        ``take_response`` then takes the first.

        Raises RemoteProtocolError, as ``take_response`` does: no later response can be trusted.
        """
        ...

    def take_response(self, body: Buffer) -> None:
        """Take one response, without its length."""
        ...


WireFactory = Callable[[OutstandingCore[Owner], ReportResponse], ClientWire]
