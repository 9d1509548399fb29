"""What is stored of streams and cursors, byte for byte as Pulsar does (``MetaStoreImpl``, ``ManagedCursorImpl``).

::

    list of ledgers   ManagedLedgerInfo, plain or compressed; empty bytes: a stream that was just made
    cursor's node     ManagedCursorInfo, plain or compressed: acknowledged entries as ranges
    cursor's ledger   in each entry a PositionInfo: acknowledged entries as bitmaps, by ledger
    compressed        47 78 | length (4) | CompressedInfo: how, size | compressed bytes

A list is compressed beyond 16,384 bytes, by ZLIB unless another way is asked for: Pulsar reads all of them whatever its
own settings are, and Python has this one. What a newer version stores in addition is kept and written back: in the
list, its ledgers and the node of a cursor, and within a property or the end of a stream as long as that stays as it is.
What a cursor has acknowledged is written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import le
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from tallystick.bookkeeper.wire.acked_bitmaps import WORD_BITS, bitmaps_of, runs_of
from tallystick.bookkeeper.wire.compression import Compression, compress, decompress
from tallystick.bookkeeper.wire.stream_values import (
    NO_LEDGER,
    NO_PROPERTIES,
    AckedRange,
    CursorInfo,
    CursorState,
    Position,
    StreamInfo,
    StreamLedger,
)
from tallystick.bookkeeper.wire.streams_pb2 import (
    CompressedInfo,
    KeyValue,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    NestedPositionInfo,
    OffloadContext,
    PositionInfo,
    StringProperty,
)
from tallystick.bookkeeper.wire.texts import texts
from tallystick.codec.steps import Steps, finished
from tallystick.errors import MetadataError, UsageError

COMPRESSED_BEYOND = 16_384  # bytes
LONGEST = 4 << 20  # bytes of one list or cursor, decompressed: a list of some 150,000 ledgers
MOST_RANGES = 65_536  # acknowledged ranges of one cursor, or entries that are acknowledged in part
MOST_BITMAP_WORDS = 1 << 20  # of all bitmaps of a cursor's entries
MOST_BATCH_WORDS = 1 << 16  # of the bitmap of a batch
STEP_RANGES = 1024  # that are encoded or decoded in one step: some ms
STEP_WORDS = 64  # of a bitmap that are decoded without a stop
WORDS_A_RANGE = 16  # of a bitmap: they cost what a range does

_MAGIC = b"\x47\x78"  # no message of protobuf begins so
_HEADER_BYTES = len(_MAGIC) + 4
_TOO_MANY = "too many ranges are acknowledged"
_WORD = 1 << 64
_SIGN = 1 << 63
_ADVICE = "nothing was changed; read it with the version that wrote it, or restore the bytes"

_PROPERTIES = (KeyValue.DESCRIPTOR, StringProperty.DESCRIPTOR)

M = TypeVar("M", bound=Message)

if TYPE_CHECKING:
    from tallystick.bookkeeper.wire.streams_pb2 import MessageRange


# -- the list of ledgers ----------------------------------------------------------------------------------------------


def encode_stream(info: StreamInfo, *, compression: Compression = Compression.ZLIB) -> bytes:
    """Raises UsageError for what the format cannot hold, and for a list that nobody would read."""
    return _compressed(readable(plain_stream(info)), compression)


def readable(plain: bytes) -> bytes:
    """Returns a plain list. Raises UsageError for one that is too long to be read again."""
    if len(plain) > LONGEST:
        reason = "the list of ledgers cannot be stored, as it is too long to be read again: trim the stream"
        raise UsageError(reason, bytes=len(plain), max_bytes=LONGEST)
    return plain


def plain_stream(info: StreamInfo) -> bytes:
    """The same, never compressed: the ledgers, and then all else."""
    message = ManagedLedgerInfo()
    try:
        for ledger in info.ledgers:
            _add_ledger(message, ledger)
        if info.terminated is not None:
            message.terminatedPosition.ledgerId, message.terminatedPosition.entryId = info.terminated[:2]
        for key, value in info.properties.items():
            message.properties.add(key=key, value=value)
        return _with_unknown(message, info.unknown)
    except (ValueError, TypeError, DecodeError, EncodeError) as error:
        raise UsageError(f"the list of ledgers cannot be stored: {error}") from error


def decode_stream(data: bytes, *, where: str) -> StreamInfo:
    """``where`` names the place for errors. Raises MetadataError for foreign or damaged bytes."""
    try:
        message = _parsed(ManagedLedgerInfo, plain_bytes(data))
        has_unknown = _has_unknown(message)  # here, or in one of its ledgers
        return StreamInfo(
            in_order([_from_ledger(each, has_unknown) for each in message.ledgerInfo]),
            _position(message.terminatedPosition) if message.HasField("terminatedPosition") else None,
            _properties(message.properties),
            _unknown_of(message) if has_unknown else b"",
        )
    except (ValueError, TypeError, DecodeError) as error:
        raise no_list(error, data, where) from error


def decoded_ledgers(fields: bytes) -> list[StreamLedger]:
    """Returns the ledgers of some fields of a list. Raises ValueError, DecodeError."""
    message = _parsed(ManagedLedgerInfo, fields)
    has_unknown = _has_unknown(message)
    return [_from_ledger(each, has_unknown) for each in message.ledgerInfo]


def in_order(ledgers: Sequence[StreamLedger]) -> tuple[StreamLedger, ...]:
    """Returns them sorted, as Pulsar does. Raises ValueError if one is there twice."""
    ids = [each.ledger for each in ledgers]
    if any(map(le, ids[1:], ids)):
        ledgers = sorted(ledgers, key=lambda each: each.ledger)
        if len(set(ids)) < len(ids):
            raise ValueError("a ledger is listed twice")
    return tuple(ledgers)


def no_list(error: Exception, data: bytes, where: str) -> MetadataError:
    """Returns what to raise of foreign or damaged bytes."""
    reason = f"this is no list of ledgers that this version can read: {error}; {_ADVICE}"
    return MetadataError(reason, where=where, starts_with=data[:32].hex())


def _add_ledger(message: ManagedLedgerInfo, ledger: StreamLedger) -> None:
    added = message.ledgerInfo.add(ledgerId=ledger.ledger)
    if ledger.has_counts:
        added.entries, added.size = ledger.entries, ledger.size
    added.timestamp = ledger.timestamp_ms
    if ledger.offload:
        added.offloadContext = ledger.offload
    if ledger.properties:
        for key, value in ledger.properties.items():
            added.properties.add(key=key, value=value)
    _add_unknown(added, ledger.unknown)


def _from_ledger(message: ManagedLedgerInfo.LedgerInfo, has_unknown: bool) -> StreamLedger:
    ledger, entries, size, timestamp = message.ledgerId, message.entries, message.size, message.timestamp
    if ledger < 0 or entries < 0 or size < 0 or timestamp < 0:
        raise ValueError(f"ledger {ledger} has a negative number")
    has_counts = entries != 0 or message.HasField("entries") or message.HasField("size")
    offload, properties = message.offloadContext, message.properties
    if not (offload or properties or has_unknown):  # as most are
        return StreamLedger(ledger, entries, size, timestamp, has_counts)
    return StreamLedger(
        ledger,
        entries,
        size,
        timestamp,
        has_counts,
        offload,
        offload != b"" and _parsed(OffloadContext, offload).complete,
        _properties(properties) if properties else NO_PROPERTIES,
        _unknown_of(message) if has_unknown else b"",
    )


# -- cursors ----------------------------------------------------------------------------------------------------------


def cursor_encoding(info: CursorInfo) -> Steps[bytes]:
    """Encode the node of a cursor, in steps. Raises UsageError for what the format cannot hold."""
    message = ManagedCursorInfo()
    try:
        message.cursorsLedgerId = info.ledger
        if info.state is not None:
            message.markDeleteLedgerId, message.markDeleteEntryId = info.state.mark[:2]
            yield from _add_ranges(message, info.state.acked)
            yield from _add_state(message, info.state)
        if info.last_active_ms:
            message.lastActive = info.last_active_ms
        for name, value in info.properties.items():
            message.cursorProperties.add(name=name, value=value)
        return _with_unknown(message, info.unknown)
    except (ValueError, TypeError, DecodeError, EncodeError) as error:
        raise UsageError(f"the cursor cannot be stored: {error}") from error


def cursor_decoding(data: bytes, *, where: str) -> Steps[CursorInfo]:
    """Decode the node of a cursor, in steps. Raises MetadataError for foreign or damaged bytes."""
    try:
        message = _parsed(ManagedCursorInfo, plain_bytes(data))
        state = None
        if message.HasField("markDeleteLedgerId") and message.HasField("markDeleteEntryId"):
            mark = Position(message.markDeleteLedgerId, message.markDeleteEntryId)
            acked = yield from _ranges(message.individualDeletedMessages)
            batches, numbers = yield from _state(message)
            state = CursorState(mark, acked, batches, numbers)
        elif message.cursorsLedgerId == NO_LEDGER:
            raise ValueError("it has neither a ledger nor a position")
        own = message.cursorProperties
        properties = _by_name([each.name for each in own], [each.value for each in own])
        return CursorInfo(message.cursorsLedgerId, state, message.lastActive, properties, _unknown_of(message))
    except (ValueError, TypeError, DecodeError) as error:
        reason = f"this is no cursor that this version can read: {error}; {_ADVICE}"
        raise MetadataError(reason, where=where, starts_with=data[:32].hex()) from error


def encode_cursor_state(state: CursorState) -> bytes:
    """Encode an entry of a cursor ledger. Raises UsageError for what the format cannot hold."""
    message = PositionInfo()
    try:
        message.ledgerId, message.entryId = state.mark[:2]
        bitmaps = bitmaps_of(state.acked)
        if bitmaps is None:
            finished(_add_ranges(message, state.acked))
        else:
            for ledger, words in bitmaps.items():
                message.individualDeletedMessageRanges.add(key=ledger, values=map(_signed, words))
        finished(_add_state(message, state))
        return message.SerializeToString()
    except (ValueError, TypeError, DecodeError, EncodeError) as error:
        raise UsageError(f"the state of the cursor cannot be stored: {error}") from error


def cursor_state_decoding(data: bytes, *, where: str) -> Steps[CursorState]:
    """Decode an entry of a cursor ledger, in steps. Raises MetadataError for foreign or damaged bytes."""
    try:
        message = _parsed(PositionInfo, data)
        acked = yield from _ranges(message.individualDeletedMessages)
        if not acked:  # as Pulsar does: it writes only one of both
            acked = yield from _from_bitmaps(message)
        batches, properties = yield from _state(message)
        return CursorState(Position(message.ledgerId, message.entryId), acked, batches, properties)
    except (ValueError, TypeError, DecodeError) as error:
        reason = f"this is no state of a cursor that this version can read: {error}; {_ADVICE}"
        raise MetadataError(reason, where=where, starts_with=data[:32].hex()) from error


def _add_ranges(message: PositionInfo | ManagedCursorInfo, acked: Iterable[AckedRange]) -> Steps[None]:
    for number, each in enumerate(acked, 1):
        added = message.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = each.after[:2]
        added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = each.to[:2]
        if number % STEP_RANGES == 0:
            yield


def _add_state(message: PositionInfo | ManagedCursorInfo, state: CursorState) -> Steps[None]:
    for name, value in state.properties.items():
        message.properties.add(name=name, value=value)
    for number, position in enumerate(sorted(state.batches), 1):
        added = message.batchedEntryDeletionIndexInfo.add(deleteSet=map(_signed, state.batches[position]))
        added.position.ledgerId, added.position.entryId = position[:2]
        if number % STEP_RANGES == 0:
            yield


def _state(
    message: PositionInfo | ManagedCursorInfo,
) -> Steps[tuple[Mapping[Position, tuple[int, ...]], Mapping[str, int]]]:
    if len(message.batchedEntryDeletionIndexInfo) > MOST_RANGES:
        raise ValueError(f"more than {MOST_RANGES} entries are acknowledged in part")
    batches, work = {}, 0
    for each in message.batchedEntryDeletionIndexInfo:
        if len(each.deleteSet) > MOST_BATCH_WORDS:
            raise ValueError(f"a batch of more than {MOST_BATCH_WORDS * 64} messages is acknowledged in part")
        batches[_position(each.position)] = _words(each.deleteSet)
        work += 1 + len(each.deleteSet) // WORDS_A_RANGE
        if work >= STEP_RANGES:
            work = 0
            yield
    names = texts(each.name for each in message.properties)
    numbers = dict(zip(names, [each.value for each in message.properties], strict=True))
    return MappingProxyType(batches), MappingProxyType(numbers)


def _ranges(ranges: Sequence[MessageRange]) -> Steps[tuple[AckedRange, ...]]:
    if len(ranges) > MOST_RANGES:
        raise ValueError(_TOO_MANY)
    acked = []
    for each in ranges:
        acked.append(AckedRange(_position(each.lowerEndpoint), _position(each.upperEndpoint)))
        if acked[-1].after >= acked[-1].to:
            raise ValueError(f"nothing is after {acked[-1].after} and up to {acked[-1].to}")
        if len(acked) % STEP_RANGES == 0:
            yield
    return tuple(acked)


def _from_bitmaps(message: PositionInfo) -> Steps[tuple[AckedRange, ...]]:
    if sum(len(each.values) for each in message.individualDeletedMessageRanges) > MOST_BITMAP_WORDS:
        raise ValueError(_TOO_MANY)
    acked: list[AckedRange] = []
    work = 0
    for each in sorted(message.individualDeletedMessageRanges, key=lambda each: each.key):
        for at in range(0, len(each.values), STEP_WORDS):
            for run in runs_of(each.values[at : at + STEP_WORDS], most=MOST_RANGES - len(acked)):
                first, last = (entry + at * WORD_BITS for entry in run)
                work += 1
                before = acked[-1] if acked else None
                if before is not None and before.to == (each.key, first - 1, -1):  # it goes on from the step before
                    acked[-1] = AckedRange(before.after, Position(each.key, last))
                else:
                    acked.append(AckedRange(Position(each.key, first - 1), Position(each.key, last)))
            work += STEP_WORDS // WORDS_A_RANGE
            if work >= STEP_RANGES:
                work = 0
                yield
    return tuple(acked)


def _words(values: Iterable[int]) -> tuple[int, ...]:
    return tuple([value % _WORD for value in values])


def _signed(word: int) -> int:
    return word - _WORD if word >= _SIGN else word


# -- both -------------------------------------------------------------------------------------------------------------


def _compressed(plain: bytes, compression: Compression) -> bytes:
    if compression is Compression.NONE or len(plain) <= COMPRESSED_BEYOND:
        return plain
    return compressed_front(len(plain), compression) + compress(plain, compression)


def compressed_front(size: int, compression: Compression) -> bytes:
    """Returns what is in front of compressed bytes; ``size`` is theirs before."""
    info = CompressedInfo(compressionType=compression.value, uncompressedSize=size).SerializeToString()
    return b"".join((_MAGIC, len(info).to_bytes(4, "big"), info))


def plain_bytes(data: bytes) -> bytes:
    """Returns what is stored, decompressed. Raises ValueError, DecodeError; UsageError where a library is missing."""
    if not data.startswith(_MAGIC):
        if len(data) > LONGEST:
            raise ValueError(f"it has more than {LONGEST} bytes")
        return data
    stop = _HEADER_BYTES + int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES], "big")
    info = _parsed(CompressedInfo, data[_HEADER_BYTES:stop])
    if not 0 <= info.uncompressedSize <= LONGEST:
        raise ValueError(f"it has {info.uncompressedSize} bytes when it is decompressed, and {LONGEST} are the most")
    return decompress(data[stop:], Compression(info.compressionType), size=info.uncompressedSize)


def _parsed(kind: type[M], data: bytes) -> M:
    message = kind.FromString(data)
    if not message.IsInitialized():
        raise ValueError("fields are missing")
    return message


def _has_unknown(message: Message) -> bool:
    """Returns whether this version does not know some field of it, or of a message within."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy.ByteSize() != message.ByteSize()


def _unknown_of(message: Message) -> bytes:
    """Returns the fields that this version does not know, as they are stored; with them the properties and the end
    that have such fields, whole."""
    if not _has_unknown(message):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for field, value in message.ListFields():
        rest.ClearField(field.name)
        if field.message_type in _PROPERTIES:
            name = field.message_type.fields[0].name
            each_last = {getattr(each, name): each for each in value}.values()  # of one name the last one counts
            getattr(rest, field.name).extend(each for each in each_last if _has_unknown(each))
        elif field.message_type is NestedPositionInfo.DESCRIPTOR and _has_unknown(value):
            getattr(rest, field.name).CopyFrom(value)
    return rest.SerializePartialToString()


def _with_unknown(message: Message, unknown: bytes) -> bytes:
    _add_unknown(message, unknown)
    return message.SerializeToString()


def _add_unknown(message: Message, unknown: bytes) -> None:
    """Add what ``_unknown_of`` returned. A property or end that was changed since has lost it."""
    if not unknown:
        return
    rest = type(message)()
    rest.MergeFromString(unknown)
    for field, value in rest.ListFields():
        own = getattr(message, field.name)
        if field.message_type in _PROPERTIES:
            stored = {_known_fields(each): each for each in value}
            for each in own:
                each.CopyFrom(stored.get(each.SerializeToString(), each))
        elif message.HasField(field.name) and own.SerializeToString() == _known_fields(value):
            own.CopyFrom(value)
        rest.ClearField(field.name)
    message.MergeFrom(rest)


def _known_fields(message: Message) -> bytes:
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy.SerializeToString()


def _position(message: NestedPositionInfo) -> Position:
    return Position(message.ledgerId, message.entryId)


def _properties(properties: Sequence[KeyValue]) -> Mapping[str, str]:
    return _by_name([each.key for each in properties], [each.value for each in properties])


def _by_name(names: list[str], values: list[str]) -> Mapping[str, str]:
    texts((*names, *values))
    return MappingProxyType(dict(zip(names, values, strict=True)))
