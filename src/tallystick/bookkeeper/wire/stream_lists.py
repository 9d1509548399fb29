"""A long list of ledgers is decoded in steps, and again only where it changed.

The list is one message of protobuf, whose ledgers are one field each, so any run of whole fields is a message of its
own. Runs of ledgers are kept with what they say. An owner appends to a list and changes its last ledger, and retention
cuts its front: all other runs are found again by their bytes, and what is new is decoded.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tallystick.bookkeeper.wire.compression import Compression, decompress
from tallystick.bookkeeper.wire.managed_ledgers import LONGEST, decode_stream
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.streams_pb2 import CompressedInfo
from tallystick.codec.steps import Steps

RUN_LEDGERS = 256  # decoded in one step: less than a millisecond
FIELDS_A_STEP = 2048  # passed over in one step

_MAGIC, _HEADER_BYTES = b"\x47\x78", 6
_LEDGER_TAG = 0x0A  # ManagedLedgerInfo.ledgerInfo, with a length
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # the last three bits of a tag


class _Run(NamedTuple):
    data: bytes
    ledgers: tuple[StreamLedger, ...]


class ListDecoder:
    """Decodes the list of one stream, each time that it has changed."""

    def __init__(self) -> None:
        self._runs: dict[bytes, _Run] = {}  # by the bytes of their first ledger

    def steps(self, data: bytes, *, where: str) -> Steps[StreamInfo]:
        """Returns at the end what ``decode_stream`` does. Raises MetadataError as that does."""
        try:
            runs, rest = yield from self._split(_plain(data), where)
        except (ValueError, IndexError, DecodeError):  # damaged, or of a kind that nobody writes
            return decode_stream(data, where=where)
        ledgers = tuple(chain.from_iterable(run.ledgers for run in runs))
        if any(first.ledger >= second.ledger for first, second in pairwise(ledgers)):
            return decode_stream(data, where=where)  # which sorts them, or says what is wrong
        self._runs = {run.data[: _field_end(run.data, 0)]: run for run in runs}
        info = decode_stream(rest, where=where)
        return StreamInfo(ledgers, info.terminated, info.properties, info.unknown)

    def _split(self, plain: bytes, where: str) -> Steps[tuple[list[_Run], bytes]]:
        """Returns the runs of ledgers, and all fields that are none."""
        runs: list[_Run] = []
        rest: list[bytes] = []
        begin = at = ledgers = passed = 0  # so many ledgers from ``begin`` to ``at`` are not decoded yet
        while at < len(plain):
            end = _field_end(plain, at)
            known = self._runs.get(plain[at:end])
            if known is not None and plain.startswith(known.data, at):
                end = at + len(known.data)
                runs += [*_decoded(plain[begin:at], where), known]
            elif plain[at] != _LEDGER_TAG:
                runs += _decoded(plain[begin:at], where)
                rest.append(plain[at:end])
            elif ledgers + 1 < RUN_LEDGERS:
                ledgers, at = ledgers + 1, end
                continue
            else:
                runs += _decoded(plain[begin:end], where)
                yield
            begin = at = end
            ledgers, passed = 0, passed + 1
            if passed % FIELDS_A_STEP == 0:
                yield
        return [*runs, *_decoded(plain[begin:], where)], b"".join(rest)


def _decoded(data: bytes, where: str) -> list[_Run]:
    return [_Run(data, decode_stream(data, where=where).ledgers)] if data else []


def _plain(data: bytes) -> bytes:
    if not data.startswith(_MAGIC):
        if len(data) > LONGEST:
            raise ValueError("it is too long")
        return data
    end = _HEADER_BYTES + int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES], "big")
    info = CompressedInfo.FromString(data[_HEADER_BYTES:end])
    if not info.IsInitialized() or not 0 <= info.uncompressedSize <= LONGEST:
        raise ValueError("fields are missing, or it is too long")
    return decompress(data[end:], Compression(info.compressionType), size=info.uncompressedSize)


def _field_end(data: bytes, at: int) -> int:
    """Returns where the field that begins there ends. Raises ValueError, IndexError for what is none."""
    tag, at = _varint(data, at)
    kind = tag & 7
    if kind == _LENGTH:
        length, at = _varint(data, at)
        at += length
    elif kind == _VARINT:
        at = _varint(data, at)[1]
    elif kind in (_FIXED32, _FIXED64):
        at += 4 if kind == _FIXED32 else 8
    else:
        raise ValueError("this is no field")
    if at > len(data):
        raise ValueError("it is cut off")
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number and where it ends."""
    number = shift = 0
    while shift < 70:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise ValueError("a number is too long")
