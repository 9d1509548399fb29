"""What is stored of streams and cursors, byte for byte as Pulsar does (``MetaStoreImpl``, ``ManagedCursorImpl``).

::

    list of ledgers   ManagedLedgerInfo, plain or compressed; empty bytes: a stream that was just made
    cursor's node     ManagedCursorInfo, plain or compressed: acknowledged entries as ranges
    cursor's ledger   in each entry a PositionInfo: acknowledged entries as bitmaps, by ledger
    compressed        47 78 | length (4) | CompressedInfo: how, size | compressed bytes

A list is compressed beyond 16,384 bytes, by ZLIB unless another way is asked for: Pulsar reads all of them whatever its
own settings are, and Python has this one. What a newer version stores in addition is kept and written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from tallystick.bookkeeper.wire.acked_bitmaps import bitmaps_of, runs_of
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
    ManagedCursorInfo,
    ManagedLedgerInfo,
    OffloadContext,
    PositionInfo,
)
from tallystick.bookkeeper.wire.texts import texts
from tallystick.errors import MetadataError, UsageError

COMPRESSED_BEYOND = 16_384  # bytes
LONGEST = 4 << 20  # bytes of one list or cursor, decompressed: a list of some 150,000 ledgers
MOST_RANGES = 65_536  # acknowledged ranges of one cursor, or entries that are acknowledged in part

_MAGIC = b"\x47\x78"  # no message of protobuf begins so
_HEADER_BYTES = len(_MAGIC) + 4
_WORD = 1 << 64
_SIGN = 1 << 63
_ADVICE = "nothing was changed; read it with the version that wrote it, or restore the bytes"

M = TypeVar("M", bound=Message)

if TYPE_CHECKING:
    from tallystick.bookkeeper.wire.streams_pb2 import (
        KeyValue,
        MessageRange,
        NestedPositionInfo,
    )


# -- the list of ledgers ----------------------------------------------------------------------------------------------


def encode_stream(info: StreamInfo, *, compression: Compression = Compression.ZLIB) -> bytes:
    """Raises UsageError for what the format cannot hold."""
    message = ManagedLedgerInfo()
    try:
        for ledger in info.ledgers:
            _add_ledger(message, ledger)
        if info.terminated is not None:
            message.terminatedPosition.ledgerId, message.terminatedPosition.entryId = info.terminated[:2]
        for key, value in info.properties.items():
            message.properties.add(key=key, value=value)
        return _compressed(_with_unknown(message, info.unknown), compression)
    except (ValueError, TypeError, DecodeError, EncodeError) as error:
        raise UsageError(f"the list of ledgers cannot be stored: {error}") from error


def decode_stream(data: bytes, *, where: str) -> StreamInfo:
    """``where`` names the place for errors. Raises MetadataError for foreign or damaged bytes."""
    try:
        message = _parsed(ManagedLedgerInfo, _plain(data))
        has_unknown = _has_unknown(message)  # here, or in one of its ledgers
        ledgers = [_from_ledger(each, has_unknown) for each in message.ledgerInfo]
        ledgers.sort(key=lambda each: each.ledger)  # as Pulsar does
        ids = {each.ledger for each in ledgers}
        if len(ids) < len(ledgers):
            raise ValueError("a ledger is listed twice")
        return StreamInfo(
            tuple(ledgers),
            _position(message.terminatedPosition) if message.HasField("terminatedPosition") else None,
            _properties(message.properties),
            _unknown_of(message) if has_unknown else b"",
        )
    except (ValueError, TypeError, DecodeError) as error:
        reason = f"this is no list of ledgers that this version can read: {error}; {_ADVICE}"
        raise MetadataError(reason, where=where, starts_with=data[:32].hex()) from error


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
    if ledger.unknown:
        added.MergeFromString(ledger.unknown)


def _from_ledger(message: ManagedLedgerInfo.LedgerInfo, has_unknown: bool) -> StreamLedger:
    ledger, entries, size, timestamp = message.ledgerId, message.entries, message.size, message.timestamp
    if ledger < 0 or entries < 0 or size < 0 or timestamp < 0:
        raise ValueError(f"ledger {ledger} has a negative number")
    offload = message.offloadContext
    return StreamLedger(
        ledger,
        entries,
        size,
        timestamp,
        message.HasField("entries") or message.HasField("size"),
        offload,
        offload != b"" and _parsed(OffloadContext, offload).complete,
        _properties(message.properties) if message.properties else NO_PROPERTIES,
        _unknown_of(message) if has_unknown else b"",
    )


# -- cursors ----------------------------------------------------------------------------------------------------------


def encode_cursor(info: CursorInfo) -> bytes:
    """Encode the node of a cursor. Raises UsageError for what the format cannot hold."""
    message = ManagedCursorInfo()
    try:
        message.cursorsLedgerId = info.ledger
        if info.state is not None:
            message.markDeleteLedgerId, message.markDeleteEntryId = info.state.mark[:2]
            _add_ranges(message, info.state.acked)
            _add_state(message, info.state)
        if info.last_active_ms:
            message.lastActive = info.last_active_ms
        for name, value in info.properties.items():
            message.cursorProperties.add(name=name, value=value)
        return _with_unknown(message, info.unknown)
    except (ValueError, TypeError, DecodeError, EncodeError) as error:
        raise UsageError(f"the cursor cannot be stored: {error}") from error


def decode_cursor(data: bytes, *, where: str) -> CursorInfo:
    """Decode the node of a cursor. Raises MetadataError for foreign or damaged bytes."""
    try:
        message = _parsed(ManagedCursorInfo, _plain(data))
        state = None
        if message.HasField("markDeleteLedgerId") and message.HasField("markDeleteEntryId"):
            mark = Position(message.markDeleteLedgerId, message.markDeleteEntryId)
            state = CursorState(mark, _ranges(message.individualDeletedMessages), *_state(message))
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
            _add_ranges(message, state.acked)
        else:
            for ledger, words in bitmaps.items():
                message.individualDeletedMessageRanges.add(key=ledger, values=map(_signed, words))
        _add_state(message, state)
        return message.SerializeToString()
    except (ValueError, TypeError, DecodeError, EncodeError) as error:
        raise UsageError(f"the state of the cursor cannot be stored: {error}") from error


def decode_cursor_state(data: bytes, *, where: str) -> CursorState:
    """Decode an entry of a cursor ledger. Raises MetadataError for foreign or damaged bytes."""
    try:
        message = _parsed(PositionInfo, data)
        acked = _ranges(message.individualDeletedMessages)
        if not acked:  # as Pulsar does: it writes only one of both
            acked = _from_bitmaps(message)
        return CursorState(Position(message.ledgerId, message.entryId), acked, *_state(message))
    except (ValueError, TypeError, DecodeError) as error:
        reason = f"this is no state of a cursor that this version can read: {error}; {_ADVICE}"
        raise MetadataError(reason, where=where, starts_with=data[:32].hex()) from error


def _add_ranges(message: PositionInfo | ManagedCursorInfo, acked: Iterable[AckedRange]) -> None:
    for each in acked:
        added = message.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = each.after[:2]
        added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = each.to[:2]


def _add_state(message: PositionInfo | ManagedCursorInfo, state: CursorState) -> None:
    for name, value in state.properties.items():
        message.properties.add(name=name, value=value)
    for position in sorted(state.batches):
        added = message.batchedEntryDeletionIndexInfo.add(deleteSet=map(_signed, state.batches[position]))
        added.position.ledgerId, added.position.entryId = position[:2]


def _state(message: PositionInfo | ManagedCursorInfo) -> tuple[Mapping[Position, tuple[int, ...]], Mapping[str, int]]:
    if len(message.batchedEntryDeletionIndexInfo) > MOST_RANGES:
        raise ValueError(f"more than {MOST_RANGES} entries are acknowledged in part")
    batches = {_position(each.position): _words(each.deleteSet) for each in message.batchedEntryDeletionIndexInfo}
    names = texts(each.name for each in message.properties)
    numbers = dict(zip(names, [each.value for each in message.properties], strict=True))
    return MappingProxyType(batches), MappingProxyType(numbers)


def _ranges(ranges: Iterable[MessageRange]) -> tuple[AckedRange, ...]:
    acked = []
    for each in ranges:
        acked.append(AckedRange(_position(each.lowerEndpoint), _position(each.upperEndpoint)))
        if acked[-1].after >= acked[-1].to:
            raise ValueError(f"nothing is after {acked[-1].after} and up to {acked[-1].to}")
        if len(acked) > MOST_RANGES:
            raise ValueError("too many ranges are acknowledged")
    return tuple(acked)


def _from_bitmaps(message: PositionInfo) -> tuple[AckedRange, ...]:
    acked: list[AckedRange] = []
    for each in sorted(message.individualDeletedMessageRanges, key=lambda each: each.key):
        runs = runs_of(each.values, most=MOST_RANGES - len(acked))
        acked += [AckedRange(Position(each.key, first - 1), Position(each.key, last)) for first, last in runs]
    return tuple(acked)


def _words(values: Iterable[int]) -> tuple[int, ...]:
    return tuple([value % _WORD for value in values])


def _signed(word: int) -> int:
    return word - _WORD if word >= _SIGN else word


# -- both -------------------------------------------------------------------------------------------------------------


def _compressed(plain: bytes, compression: Compression) -> bytes:
    if compression is Compression.NONE or len(plain) <= COMPRESSED_BEYOND:
        return plain
    info = CompressedInfo(compressionType=compression.value, uncompressedSize=len(plain)).SerializeToString()
    return b"".join((_MAGIC, len(info).to_bytes(4, "big"), info, compress(plain, compression)))


def _plain(data: bytes) -> bytes:
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
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.ByteSize() != message.ByteSize()


def _unknown_of(message: Message) -> bytes:
    """Returns the fields that this version does not know, as they are stored."""
    if not _has_unknown(message):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for known, _ in message.ListFields():
        rest.ClearField(known.name)
    return rest.SerializePartialToString()


def _with_unknown(message: Message, unknown: bytes) -> bytes:
    if unknown:
        message.MergeFromString(unknown)
    return message.SerializeToString()


def _position(message: NestedPositionInfo) -> Position:
    return Position(message.ledgerId, message.entryId)


def _properties(properties: Sequence[KeyValue]) -> Mapping[str, str]:
    return _by_name([each.key for each in properties], [each.value for each in properties])


def _by_name(names: list[str], values: list[str]) -> Mapping[str, str]:
    texts((*names, *values))
    return MappingProxyType(dict(zip(names, values, strict=True)))
