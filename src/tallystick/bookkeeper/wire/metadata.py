"""Ledger metadata as the coordination service stores it (``LedgerMetadataSerDe``).

::

    every format   BookieMetadataFormatVersion TAB n LF body
    1   text lines: write quorum, ensemble size, length; per ensemble: first entry TAB bookie TAB bookie …;
        then "last entry TAB CLOSED" without LF, "-102 TAB CLOSED" in recovery, nothing when open.
        No ack quorum (it is the write quorum), digest, password or custom metadata.
    2   LedgerMetadataFormat as protobuf text, never a creation token
    3   varint length | LedgerMetadataFormat; what the original writes by default, byte for byte

A rewritten ledger keeps its format, so that the client that made it can go on reading it. Only a closed ledger's last
entry and length mean anything: an open one's are written as -1 and 0 and not read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tallystick.bookkeeper.wire.formats_pb2 import LedgerMetadataFormat
from tallystick.bookkeeper.wire.texts import texts
from tallystick.bookkeeper.wire.values import (
    NO_CUSTOM,
    NO_ENTRY,
    DigestType,
    EntryId,
    Fragment,
    LedgerMetadata,
    LedgerState,
)
from tallystick.errors import MetadataError, UsageError

HEADER = b"BookieMetadataFormatVersion\t"
_HEADER_3 = HEADER + b"3\n"
IN_RECOVERY_MARK = -102  # format 1's "last entry" of a ledger in recovery
_LONGEST_VERSION = 10  # digits
_SHORT = 1024  # bytes of a message: longer ones are not kept
_STATES = {state.value: state for state in LedgerState}  # the enumerations' own look-up takes ten times as long
_DIGEST_TYPES = {digest.value: digest for digest in DigestType}


def encode(metadata: LedgerMetadata, *, ctoken: int | None = None) -> bytes:
    """Encode metadata in the ledger's own format; ``ctoken`` takes the place of its own.

    Raises UsageError for what that format cannot hold.
    """
    header = HEADER + b"%d\n" % metadata.format_version
    try:
        if metadata.format_version == 1:
            return header + _encode_lines(metadata)
        if metadata.format_version == 2:
            return header + text_format.MessageToString(_to_message(metadata, ctoken)).encode()
        if metadata.format_version == 3:
            body = _to_message(metadata, ctoken).SerializeToString()
            return header + _varint(len(body)) + body
    except (ValueError, TypeError) as error:
        raise UsageError(f"the ledger metadata cannot be stored: {error}") from error
    raise UsageError("the ledger metadata has an unknown format", format=metadata.format_version)


def decode(data: bytes, *, where: str = "", ctime_ms: int | None = None) -> LedgerMetadata:
    """Decode the metadata in ``data``. ``where`` names the place for errors; ``ctime_ms`` is the creation time that the
    coordination service has, for the usual case that the ledger stores none. Raises MetadataError.
    """
    if data.startswith(_HEADER_3):
        version, body = 3, data[len(_HEADER_3) :]
    else:
        version, body = _split_header(data, where)
    try:
        if version == 1:
            return _decode_lines(body, ctime_ms)
        elif version == 2:
            return _from_message(text_format.Parse(body.decode(), LedgerMetadataFormat()), version, ctime_ms)
        return _from_binary(_delimited(body), ctime_ms)
    except (UsageError, DecodeError, text_format.ParseError, ValueError) as error:
        raise MetadataError(f"the ledger metadata is damaged: {error}", where=where, format=version) from error


class ClosedEnd(NamedTuple):
    """The end of a closed ledger. ``common`` is its metadata without end, time and token: many ledgers share it."""

    common: LedgerMetadata
    last_entry: EntryId
    length: int  # payload bytes


def closed_end(data: bytes) -> ClosedEnd | None:
    """Decode the end in ``data`` alone, in a third of the time of ``decode``. Returns None if only that can read it."""
    if not data.startswith(_HEADER_3):
        return None
    try:
        own = _own_fields(_delimited(data[len(_HEADER_3) :]))
    except (UsageError, DecodeError, ValueError):
        return None
    if own is None or not own.common.is_closed:
        return None
    return ClosedEnd(own.common, own.last_entry, own.length)


def state_of(data: bytes) -> LedgerState | None:
    """Return the state that stored metadata has, None if it cannot be read."""
    try:
        return decode(data).state
    except MetadataError:
        return None


def _split_header(data: bytes, where: str) -> tuple[int, bytes]:
    line, _, body = data.partition(b"\n")
    number = line.removeprefix(HEADER)
    if not line.startswith(HEADER) or len(number) > _LONGEST_VERSION or not number.isdigit():
        raise MetadataError("this is not ledger metadata", where=where, starts_with=data[:48])
    if not 1 <= int(number) <= 3:
        raise MetadataError("the ledger metadata has an unknown format", where=where, format=int(number))
    return int(number), body


def _encode_lines(metadata: LedgerMetadata) -> bytes:
    if metadata.ack_quorum != metadata.write_quorum or metadata.has_password or metadata.custom:
        raise UsageError("format 1 has no ack quorum, password or custom metadata")
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(metadata.length)]
    lines += ["\t".join((str(fragment.first), *fragment.bookies)) for fragment in metadata.fragments]
    last = {
        LedgerState.OPEN: "",
        LedgerState.IN_RECOVERY: f"{IN_RECOVERY_MARK}\tCLOSED",
        LedgerState.CLOSED: f"{metadata.last_entry}\tCLOSED",
    }
    return "\n".join((*lines, last[metadata.state])).encode()


def _decode_lines(body: bytes, ctime_ms: int | None) -> LedgerMetadata:
    lines = body.decode().split("\n")
    quorum, size, length = (_number(line) for line in lines[:3])
    state, last_entry = LedgerState.OPEN, NO_ENTRY
    last = lines.pop().split("\t") if len(lines) > 3 else []
    if last[1:] == ["CLOSED"]:
        in_recovery = _number(last[0]) == IN_RECOVERY_MARK
        state = LedgerState.IN_RECOVERY if in_recovery else LedgerState.CLOSED
        last_entry = NO_ENTRY if in_recovery else _number(last[0])
    elif last != [""]:
        raise ValueError("its last line is not whole")
    rows = [line.split("\t") for line in lines[3:]]
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=quorum,
        ack_quorum=quorum,
        fragments=tuple(Fragment(_entry_id(_number(first)), tuple(bookies)) for first, *bookies in rows),
        state=state,
        last_entry=last_entry,
        length=length if state is LedgerState.CLOSED else 0,
        format_version=1,
        ctime_ms=ctime_ms,
        ctime_stored=ctime_ms is None,
        has_password=False,
    )


def _to_message(metadata: LedgerMetadata, ctoken: int | None) -> LedgerMetadataFormat:
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry,
        state=metadata.state.name,
        digestType=metadata.digest_type.name if metadata.has_password else None,
        password=metadata.password if metadata.has_password else None,
        ackQuorumSize=metadata.ack_quorum,
    )
    for fragment in metadata.fragments:
        message.segment.add(ensembleMember=fragment.bookies, firstEntryId=fragment.first)
    if metadata.ctime_ms is not None and metadata.ctime_stored:
        message.ctime = metadata.ctime_ms
    for key, value in metadata.custom.items():
        message.customMetadata.add(key=key, value=value)
    if metadata.format_version == 3:
        message.cToken = metadata.ctoken if ctoken is None else ctoken
    return message


def _from_binary(body: bytes, ctime_ms: int | None) -> LedgerMetadata:
    own = _own_fields(body)
    if own is None:
        return _from_message(LedgerMetadataFormat.FromString(body), 3, ctime_ms)
    common, is_closed, ctime_stored = own.common, own.common.is_closed, own.ctime_ms is not None
    return LedgerMetadata(
        ensemble_size=common.ensemble_size,
        write_quorum=common.write_quorum,
        ack_quorum=common.ack_quorum,
        fragments=common.fragments,
        digest_type=common.digest_type,
        password=common.password,
        state=common.state,
        last_entry=own.last_entry if is_closed else NO_ENTRY,
        length=own.length if is_closed else 0,
        custom=common.custom,
        format_version=3,
        ctime_ms=own.ctime_ms if ctime_stored else ctime_ms,
        ctime_stored=ctime_stored or ctime_ms is None,
        ctoken=own.ctoken,
        has_password=common.has_password,
    )


class _OwnFields(NamedTuple):
    """Metadata that many ledgers have in common, and the fields that are a ledger's own."""

    common: LedgerMetadata
    last_entry: EntryId
    length: int
    ctoken: int
    ctime_ms: int | None


def _own_fields(body: bytes) -> _OwnFields | None:
    """Decode what a ledger has of its own; what it has in common with many others is decoded once for all of them.

    Returns None for metadata that are too long for that, or lack an end.
    """
    message = LedgerMetadataFormat.FromString(body)
    if len(body) > _SHORT or not (message.HasField("length") and message.HasField("lastEntryId")):
        return None
    last_entry, length, ctoken, ctime_ms = message.lastEntryId, message.length, message.cToken, None
    message.lastEntryId = message.length = message.cToken = 0
    if message.HasField("ctime"):
        ctime_ms, message.ctime = message.ctime, 0
    return _OwnFields(_common(message.SerializePartialToString()), last_entry, length, ctoken, ctime_ms)


@lru_cache(maxsize=1024)
def _common(body: bytes) -> LedgerMetadata:
    return _from_message(LedgerMetadataFormat.FromString(body), 3, None)


def _from_message(message: LedgerMetadataFormat, version: int, ctime_ms: int | None) -> LedgerMetadata:
    if not message.IsInitialized():
        raise ValueError("fields are missing")
    has_password, ctime_stored = message.HasField("password"), message.HasField("ctime")
    if message.HasField("digestType") != has_password:
        raise ValueError("digest type and password come together or not at all")
    state, quorum = _STATES[message.state], message.quorumSize
    is_closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=quorum,
        ack_quorum=message.ackQuorumSize if message.HasField("ackQuorumSize") else quorum,
        fragments=tuple(
            [Fragment(_entry_id(each.firstEntryId), texts(each.ensembleMember)) for each in message.segment]
        ),
        digest_type=_DIGEST_TYPES[message.digestType] if has_password else DigestType.CRC32,
        password=message.password,
        state=state,
        last_entry=message.lastEntryId if is_closed and message.HasField("lastEntryId") else NO_ENTRY,
        length=message.length if is_closed else 0,
        custom=_custom(message) if message.customMetadata else NO_CUSTOM,
        format_version=version,
        ctime_ms=message.ctime if ctime_stored else ctime_ms,
        ctime_stored=ctime_stored or ctime_ms is None,
        ctoken=message.cToken,
        has_password=has_password,
    )


def _custom(message: LedgerMetadataFormat) -> Mapping[str, bytes]:
    keys = texts(each.key for each in message.customMetadata)
    return MappingProxyType(dict(zip(keys, [each.value for each in message.customMetadata], strict=True)))


def _entry_id(number: int) -> int:
    if number < 0:
        raise ValueError(f"an ensemble starts at the negative entry {number}")
    return number


def _number(text: str) -> int:
    if len(text) > 20:  # wider than 64 bits; int() would also take digits of other scripts and underscores
        raise ValueError("a number is too long")
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def _delimited(body: bytes) -> bytes:
    """Return the message behind its varint length. Bytes that follow it are refused: a rewrite would lose them."""
    if body and body[0] < 0x80 and len(body) == body[0] + 1:
        return body[1:]
    size = 0
    for at, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            if len(body) != at + 1 + size:
                raise ValueError(f"it should have {size} bytes and has {len(body) - at - 1}")
            return body[at + 1 :]
    raise ValueError("its length is not whole")
