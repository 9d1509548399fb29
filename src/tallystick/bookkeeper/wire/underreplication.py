"""What the coordination service stores of ledgers that lack copies: marks, locks and votes, as protobuf text.

::

    mark    replica: "bookie" LF …  ctime: milliseconds LF     which bookies lack entries, and since when it is known
    lock    bookieId: "holder" LF                              who repairs the ledger now
    vote    bookieId: "candidate" LF                           who would be the auditor

The original's ``ZkLedgerUnderreplicationManager`` and ``ZkLedgerAuditorManager`` read and write the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from google.protobuf import text_format
from google.protobuf.message import Message

from tallystick.bookkeeper.wire.formats_pb2 import (
    AuditorVoteFormat,
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    UnderreplicatedLedgerFormat,
)
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import MetadataError

LAYOUT_TYPE, LAYOUT_VERSION = "BASIC", 1


@dataclass(frozen=True)
class Mark:
    """A ledger lacks copies. ``bookies`` should have them; none are named where a worker is to look for itself.

    ``ctime_ms`` is when that was found; None if nobody stored it.
    """

    bookies: tuple[BookieId, ...]
    ctime_ms: int | None = None

    def with_bookies(self, bookies: Collection[BookieId], now_ms: int) -> Mark:
        """Return the mark with these bookies, too; the same one if it names them all."""
        new_bookies = [bookie for bookie in dict.fromkeys(bookies) if bookie not in self.bookies]
        return Mark((*self.bookies, *new_bookies), now_ms) if new_bookies else self


def encode_mark(mark: Mark) -> bytes:
    return _encode(UnderreplicatedLedgerFormat(replica=mark.bookies, ctime=mark.ctime_ms))


def decode_mark(data: bytes, *, where: str) -> Mark:
    """Raises MetadataError, which names the place, for damaged bytes."""
    message = UnderreplicatedLedgerFormat()
    _decode(data, message, where)
    return Mark(tuple(message.replica), message.ctime if message.HasField("ctime") else None)


def encode_lock(holder: str) -> bytes:
    return _encode(LockDataFormat(bookieId=holder))


def decode_lock(data: bytes, *, where: str) -> str:
    """Return who holds it, "" if it does not say. Raises MetadataError for damaged bytes."""
    message = LockDataFormat()
    _decode(data, message, where)
    return message.bookieId


def encode_vote(candidate: str) -> bytes:
    return _encode(AuditorVoteFormat(bookieId=candidate))


def decode_vote(data: bytes, *, where: str) -> str:
    """Return who votes for itself, "" if it does not say. Raises MetadataError for damaged bytes."""
    message = AuditorVoteFormat()
    _decode(data, message, where)
    return message.bookieId


def encode_layout() -> bytes:
    """Return the layout of the tree, the only one there is."""
    return _encode(LedgerRereplicationLayoutFormat(type=LAYOUT_TYPE, version=LAYOUT_VERSION))


def check_layout(data: bytes, *, where: str) -> None:
    """Raises MetadataError for another layout than ``encode_layout`` makes."""
    message = LedgerRereplicationLayoutFormat()
    _decode(data, message, where)
    if (message.type, message.version) != (LAYOUT_TYPE, LAYOUT_VERSION):
        raise MetadataError(
            "the tree of ledgers that lack copies has a layout that is not known",
            where=where,
            layout=f"{message.type}:{message.version}",
        )


def _encode(message: Message) -> bytes:
    return text_format.MessageToString(message, as_utf8=True).encode()


def _decode(data: bytes, message: Message, where: str) -> None:
    try:
        text_format.Parse(data.decode(), message)
        if not message.IsInitialized():
            raise ValueError("fields are missing")
    except (ValueError, text_format.ParseError) as error:
        raise MetadataError(f"a node of the repair cannot be read: {error}", where=where) from error
