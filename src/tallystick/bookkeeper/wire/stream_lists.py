"""A long list of ledgers is decoded and encoded in steps, and again only where it changed.

The list is one message of protobuf, whose ledgers are one field each, so any run of whole fields is a message of its
own. Runs of ledgers are kept with what they say. An owner appends to a list and changes its last ledger, and retention
cuts its front: all other runs are found again, by their bytes or by their ledgers, and what is new is worked on.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.managed_ledgers import (
    COMPRESSED_BEYOND,
    compressed_front,
    decode_stream,
    encode_stream,
    in_order,
    no_list,
    plain_bytes,
    plain_stream,
    readable,
)
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.steps import Steps

RUN_LEDGERS = 256  # decoded or encoded in one step: less than a millisecond
FIELDS_A_STEP = 2048  # passed over in one step
COMPRESSED_A_STEP = 1 << 17  # bytes

_LEDGER_TAG = 0x0A  # ManagedLedgerInfo.ledgerInfo, with a length
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # the last three bits of a tag


class _Run(NamedTuple):
    data: bytes
    ledgers: tuple[StreamLedger, ...]


class ListCodec:
    """Decodes and encodes the list of one stream, each time that it has changed. One call at a time."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: tuple[_Run, ...] = ()  # of the list as it was seen last, if that is long

    # -- from bytes ---------------------------------------------------------------------------------------------------

    def decoding(self, data: bytes, *, where: str) -> Steps[StreamInfo]:
        """Returns at the end what ``decode_stream`` does. Raises MetadataError as that does."""
        try:
            plain = plain_bytes(data)
            if len(plain) <= COMPRESSED_BEYOND:
                self._runs = ()
                return decode_stream(data, where=where)
            runs, rest = yield from self._split(plain, where)
        except (ValueError, IndexError, DecodeError):  # damaged, or of a kind that nobody writes
            return decode_stream(data, where=where)
        try:
            ledgers = tuple(chain.from_iterable(run.ledgers for run in runs))
            if any(before.ledgers[-1].ledger >= after.ledgers[0].ledger for before, after in pairwise(runs)):
                ledgers = in_order(ledgers)
        except ValueError as error:
            raise no_list(error, data, where) from error
        self._runs = tuple(runs)
        return replace(decode_stream(rest, where=where), ledgers=ledgers)

    def _split(self, plain: bytes, where: str) -> Steps[tuple[list[_Run], bytes]]:
        """Returns the runs of ledgers, and all fields that are none."""
        by_first = {run.data[: _field_end(run.data, 0)]: run for run in self._runs}
        runs: list[_Run] = []
        rest: list[bytes] = []
        begin = at = ledgers = passed = 0  # so many ledgers from ``begin`` to ``at`` are not decoded yet
        while at < len(plain):
            end = _field_end(plain, at)
            known = by_first.get(plain[at:end])
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

    # -- to bytes -----------------------------------------------------------------------------------------------------

    def encoding(self, info: StreamInfo) -> Steps[bytes]:
        """Returns at the end what ``encode_stream`` does, compressed by ZLIB. Raises UsageError as that does."""
        if len(info.ledgers) <= RUN_LEDGERS:
            self._runs = ()
            return encode_stream(info)
        known = {run.ledgers[0].ledger: run for run in self._runs if run.ledgers}
        runs: list[_Run] = []
        at = 0
        while at < len(info.ledgers):
            run = known.get(info.ledgers[at].ledger)
            if run is None or info.ledgers[at : at + len(run.ledgers)] != run.ledgers:
                run = _encoded(info.ledgers[at : _next_known(info.ledgers, at, known)])
                yield
            runs.append(run)
            at += len(run.ledgers)
        self._runs = tuple(runs)
        plain = readable(b"".join([*(run.data for run in runs), plain_stream(replace(info, ledgers=()))]))
        if len(plain) <= COMPRESSED_BEYOND:
            return plain
        return compressed_front(len(plain), Compression.ZLIB) + (yield from _deflated(plain))


def _encoded(ledgers: tuple[StreamLedger, ...]) -> _Run:
    return _Run(plain_stream(StreamInfo(ledgers)), ledgers)


def _next_known(ledgers: tuple[StreamLedger, ...], at: int, known: dict[LedgerId, _Run]) -> int:
    """Returns where the run ends that begins there: a new one ends where a known one begins."""
    end = min(at + RUN_LEDGERS, len(ledgers))
    return next((index for index in range(at + 1, end) if ledgers[index].ledger in known), end)


def _deflated(plain: bytes) -> Steps[bytes]:
    deflate = zlib.compressobj()
    parts = []
    for at in range(0, len(plain), COMPRESSED_A_STEP):
        parts.append(deflate.compress(plain[at : at + COMPRESSED_A_STEP]))
        yield
    return b"".join([*parts, deflate.flush()])


def _decoded(data: bytes, where: str) -> list[_Run]:
    return [_Run(data, decode_stream(data, where=where).ledgers)] if data else []


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
