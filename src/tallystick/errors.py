"""The one tree of exceptions::

    TallyError
    ├── UsageError                     the caller's arguments or settings are wrong; nothing was done
    ├── NotFound                       a bookie, queue, broker, node or store of this name does not exist
    ├── ProtocolError
    │   ├── LocalProtocolError         we broke a protocol rule: a bug of ours
    │   └── RemoteProtocolError        the peer sent bytes that the protocol does not allow
    ├── Unavailable                    a peer or service could not do it now
    │   ├── RequestTimeout             no answer in time: the request may have taken effect
    │   ├── ConnectionLost             the connection ended before the answer: the request may have taken effect
    │   ├── NotEnoughBookies           fewer bookies than the ensemble needs
    │   ├── BookieUnavailable          one bookie refused the connection, closed it, or is not registered
    │   ├── BrokerUnavailable          no broker takes, or has, the messages of a topic or queue now
    │   └── QueueRebuilding            a queue's files were lost, and are being built again from the log
    ├── LedgerError
    │   ├── LedgerFenced               another client recovers this ledger; unconfirmed entries may or may not survive
    │   ├── LedgerClosed               the ledger takes no more entries
    │   ├── NoSuchLedger, LedgerExists, NoSuchEntry
    │   ├── EntryLost                  an operator gave up these entries: no good copy was left of them
    │   ├── EntryExists                an entry with this id was appended before
    │   ├── EntriesMissing             too many entries wait for one before them that nobody appended yet
    │   ├── Unauthorized               wrong password
    │   ├── DigestMismatch             no replica had bytes that match their digest
    │   └── RecoveryIncomplete         too many bookies gave no certain answer: nothing was closed, try again
    ├── StreamError
    │   ├── NoSuchStream, NoSuchCursor
    │   ├── StreamOwned                somebody else owns this stream or cursor, or may: nothing was done
    │   ├── StreamFenced               another owner took it over: unconfirmed appends may or may not be stored
    │   ├── StreamTerminated           the stream takes no more appends, for good
    │   ├── StreamClosed               this handle takes no more calls
    │   ├── StreamFull                 appends that are not stored yet have reached their bound
    │   │   └── BacklogFull            the slowest cursor is further behind than the backlog quota allows
    │   ├── EarlierAppendFailed        a lower number of the producer failed: it is appended again before this one
    │   ├── NoSuchPosition             the stream has no such position
    │   │   └── PositionTrimmed        it had one: what was there has been deleted
    │   ├── CheckpointLost             an application began again without its checkpoint: nothing was committed
    │   ├── HandOverRefused            a Pulsar broker would delete something of this stream: nothing was done
    │   └── CorruptEntry               an entry's bytes are no messages
    ├── MetadataError
    │   ├── MetadataConflict           a compare-and-set lost against another client
    │   │   └── ZnodeExists, NoSuchZnode, ZnodeChanged, ZnodeNotEmpty
    │   ├── MetadataRefused            the metadata service does not let this identity in, or not to a node
    │   └── MetadataUnavailable        the metadata service cannot be reached: nothing was changed, but for
    │       └── MetadataUncertain      it did not say whether a change was made: it may have been
    ├── BrokerError                    a broker or name server answered with an error code
    │   ├── NonDeterministicReplay     a batch that is repeated has other messages than it had: no more of it was sent
    │   └── NoSuchTopic, NoSuchMessage the queue does not reach to this offset (any more)
    └── StorageError
        ├── DiskFull, CorruptRecord    a stored record is damaged and not just a torn tail
        ├── OffsetMismatch             bytes for another place of the log than its end
        └── InvalidCookie              these folders belong to another bookie, or lost their data

``code`` is the number of the original's client; ``retriable``: the same call may succeed later; ``ambiguous``: it may
have taken effect all the same. ``fields`` are attributes, too (``error.ledger``), None where they are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class TallyError(Exception):
    """A failure reported on purpose. Keyword arguments become attributes and are shown after the text."""

    code: ClassVar[int] = -999
    retriable: ClassVar[bool] = False
    ambiguous: bool = False  # an instance may say it where its class does not
    message: str
    fields: Mapping[str, Any]

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message or _text_of(type(self))
        self.fields = fields
        self.__dict__.update({name: value for name, value in fields.items() if name not in _OF_THE_CLASS})

    def __str__(self) -> str:
        parts = " ".join(f"{key}={_shown(str(value))}" for key, value in self.fields.items())
        return f"{self.message} ({parts})" if parts else self.message

    def __repr__(self) -> str:
        parts = [] if self.message == _text_of(type(self)) else [repr(self.message)]
        parts += [f"{key}={_shown(repr(value))}" for key, value in self.fields.items()]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        own = {"ambiguous": self.ambiguous} if "ambiguous" in self.__dict__ else None
        return (_rebuild, (type(self), self.message, self.fields), own)


_OF_THE_CLASS = frozenset(dir(TallyError)) | {"message", "fields"}  # a field of such a name is in ``fields`` alone


def _text_of(kind: type[TallyError]) -> str:
    return (kind.__doc__ or "").split("\n", 1)[0].rstrip(".")


def _shown(value: str) -> str:
    return value if len(value) <= 1000 else f"{value[:1000]}… ({len(value):,} characters)"


def _rebuild(kind: type[TallyError], message: str, fields: dict[str, Any]) -> TallyError:
    return kind(message, **fields)


class UsageError(TallyError):
    """The arguments or settings are wrong; nothing was done."""

    code = -14


class NotFound(TallyError):
    """There is nothing of this name."""


class ProtocolError(TallyError):
    """A protocol rule was broken."""

    code = -16


class LocalProtocolError(ProtocolError):
    """This side broke a protocol rule."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that the protocol does not allow."""


class Unavailable(TallyError):
    """A peer or service cannot do this now."""

    code = -8
    retriable = True
    address: str | tuple[str, int] | None = None
    bookie: str | None = None
    ledger: int | None = None
    topic: str | None = None


class RequestTimeout(Unavailable):
    """No answer came in time; the request may have taken effect."""

    code = -23
    ambiguous = True


class ConnectionLost(Unavailable):
    """The connection ended before the answer; the request may have taken effect."""

    ambiguous = True


class QueueRebuilding(Unavailable):
    """The files of a queue were lost, and are being built again from the log."""


class NotEnoughBookies(Unavailable):
    """Fewer bookies are available than the ensemble needs."""

    code = -6
    needed: int | None = None
    available: int | None = None
    read_only: int | None = None  # that take no entries: their disks are full, or they are drained


class BrokerUnavailable(Unavailable):
    """No broker takes, or has, the messages of this topic or queue now."""

    queue: Any = None  # a ``MessageQueue``
    brokers: Sequence[str] | None = None  # the processes of the queue's broker set, where none of them responded


class BookieUnavailable(Unavailable):
    """The bookie is not registered, or refused or closed the connection."""

    ambiguous = True


class LedgerError(TallyError):
    """The ledger does not allow this."""

    code = -1
    ledger: int | None = None
    entry: int | None = None
    bookie: str | None = None


class LedgerFenced(LedgerError):
    """Another client recovers this ledger; entries that were not confirmed may or may not survive."""

    code = -101
    ambiguous = True


class LedgerClosed(LedgerError):
    """The ledger is closed."""

    code = -11


class NoSuchLedger(LedgerError):
    """There is no such ledger."""

    code = -25


class LedgerExists(LedgerError):
    """A ledger with this id exists: choose another id, or give none."""

    code = -20


class NoSuchEntry(LedgerError):
    """The ledger has no such entry."""

    code = -13


class EntryLost(LedgerError):
    """No good copy of this entry was left, and an operator gave it up."""

    last: int | None = None  # the last one of the run of lost entries


class EntryExists(LedgerError):
    """An entry with this id was appended before."""

    code = -22


class EntriesMissing(LedgerError):
    """Too many entries wait for one before them that nobody appended yet."""

    retriable = True
    missing: int | None = None  # the lowest id that nobody appended
    held_bytes: int | None = None


class Unauthorized(LedgerError):
    """The password is wrong."""

    code = -102


class DigestMismatch(LedgerError):
    """The bytes of an entry do not match their digest."""

    code = -5


class RecoveryIncomplete(LedgerError):
    """Too many bookies gave no certain answer; nothing was closed and recovery can be tried again."""

    code = -10
    retriable = True


class StreamError(TallyError):
    """The stream does not allow this."""

    code = -1
    stream: str | None = None
    cursor: str | None = None
    position: Any = None  # a ``Position``
    application: str | None = None  # a sink's


class NoSuchStream(StreamError):
    """There is no stream of this name."""


class NoSuchCursor(StreamError):
    """The stream has no cursor of this name."""


class StreamOwned(StreamError):
    """Somebody else owns this, or may own it."""

    retriable = True
    owner: str | None = None
    since_ms: int | None = None  # wall clock; None where nobody can tell


class StreamFenced(StreamError):
    """Another owner took this over; what was not confirmed may or may not be stored."""

    ambiguous = True


class StreamTerminated(StreamError):
    """The stream was terminated: it takes no more appends."""


class StreamClosed(StreamError):
    """This handle is closed."""


class StreamFull(StreamError):
    """Appends that are not stored yet have reached their bound."""

    retriable = True


class BacklogFull(StreamFull):
    """The slowest cursor is further behind than the backlog quota of the stream allows."""

    quota_bytes: int | None = None


class EarlierAppendFailed(StreamError):
    """An append with a lower number of this producer failed: append that again before this one."""

    retriable = True
    producer: str | None = None
    sequence: int | None = None
    earlier: int | None = None  # the lowest that failed


class NoSuchPosition(StreamError):
    """The stream has no such position."""


class PositionTrimmed(NoSuchPosition):
    """What was at this position has been deleted, by retention or a trim."""

    first: Any = None  # the first ``Position`` that there is


class CheckpointLost(StreamError):
    """The application has committed under another query: it began again without its checkpoint."""

    query: str | None = None  # that is recorded
    batch: int | None = None  # the last one that it committed


class HandOverRefused(StreamError):
    """A Pulsar broker would delete something of this stream."""

    deletions: Any = None  # ``BrokerDeletions``: what it would delete


class CorruptEntry(StreamError):
    """The bytes of this entry are no messages."""


class MetadataError(TallyError):
    """The metadata service failed or holds something unexpected."""

    code = -18
    ledger: int | None = None
    bookie: str | None = None
    path: str | None = None


class MetadataConflict(MetadataError):
    """Another client changed this metadata first."""

    code = -17
    retriable = True


class ZnodeExists(MetadataConflict):
    """There is a znode at this path already."""


class NoSuchZnode(MetadataConflict):
    """There is no znode at this path."""


class ZnodeChanged(MetadataConflict):
    """The znode has another version than the change names."""

    expected: int | None = None
    stored: int | None = None  # the version that it has, where the service says it


class ZnodeNotEmpty(MetadataConflict):
    """The znode has children."""


class MetadataRefused(MetadataError):
    """The metadata service does not let this identity in, or not to this node."""


class MetadataUnavailable(MetadataError):
    """The metadata service cannot be reached."""

    code = -9
    retriable = True  # nothing was changed, unless it is a MetadataUncertain: ``ambiguous`` says so


class MetadataUncertain(MetadataUnavailable):
    """The metadata service did not say whether it made the change; it may have."""

    ambiguous = True


class BrokerError(TallyError):
    """A broker or name server answered with an error code."""

    code = 1
    response_code: int = 1  # the original's ``ResponseCode``
    topic: str | None = None


class NoSuchTopic(BrokerError):
    """No broker knows this topic."""

    code = response_code = 17


class NonDeterministicReplay(BrokerError):
    """A batch that a sink repeats has other messages than it had before."""


class NoSuchMessage(BrokerError):
    """The queue has no message at this offset (any more)."""

    code = response_code = 21
    queue: Any = None  # a ``MessageQueue``
    offset: int | None = None
    first: int | None = None
    end: int | None = None  # excluded


class StorageError(TallyError):
    """The disk failed."""

    code = -1
    path: str | None = None
    offset: int | None = None


class CorruptRecord(StorageError):
    """A stored record is damaged."""


class OffsetMismatch(StorageError):
    """These bytes belong to another place of the log than its end."""


class DiskFull(StorageError):
    """The disk is full."""


class InvalidCookie(StorageError):
    """These folders belong to another bookie or have lost their data."""
