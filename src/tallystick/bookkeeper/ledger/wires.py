"""What a connection to a bookie speaks: requests to bytes, and bytes to what those hear who asked.

A wire is one protocol on one connection. It names requests by numbers, by which ``Outstanding`` keeps who waits, and
until when: a protocol whose responses bear the number of their request has names in those; version 2 has what a request
is about. Requests and responses are values of no protocol, so that whoever asks knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tallystick.bookkeeper.ledger.lanes import Topic
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece
from tallystick.bookkeeper.ledger.outstanding import Key, Outstanding
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
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


BookieRequest = ReadRequest | BatchRequest
Report = Callable[[Owner, Code, list[EntryId], Sequence[Buffer]], None]  # see Reports.answered


class ClientWire(Protocol):
    """See the module. It settles requests when their responses come, and reports them; that they are sent, are overdue
    or end with the connection is not its business."""

    def adds_topic(self, ledger: LedgerId) -> Topic:
        """The name of a new lane of adds. Lanes of one name share their responses, the oldest one first."""
        ...

    def reads_topic(self, ledger: LedgerId) -> Topic:
        """The name of a new lane of plain reads."""
        ...

    def adds(
        self, about: Topic, entries: Sequence[EntryId], frames: Iterable[OutgoingPiece]
    ) -> Iterable[OutgoingPiece]:
        """The bytes of a lane's next requests.

        ``frames``: an ADD of version 2 for each entry, made once for all bookies (``encode_adds``), in any number of
        pieces, which are not to be changed. It has all that another protocol needs to make a head of its own.
        """
        ...

    def reads(self, about: Topic, ledger: LedgerId, entries: Sequence[EntryId]) -> OutgoingPiece:
        """The bytes of a lane's next requests."""
        ...

    def request(self, request: BookieRequest) -> tuple[Key, OutgoingPiece]:
        """The name of a lone request, and its bytes."""
        ...

    def run(self, buffer: bytearray, start: int, end: int) -> int:
        """Take responses that come in a row, at once. Returns the place behind them; ``start`` when there is none.

        ``take_response`` takes the first then.

        Raises RemoteProtocolError, as ``take_response`` does: no later answer can be trusted.
        """
        ...

    def take_response(self, body: bytes | bytearray) -> None:
        """Take one answer, without its length."""
        ...


WireFactory = Callable[[Outstanding[Owner], Report], ClientWire]
