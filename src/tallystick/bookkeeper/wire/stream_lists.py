"""A long list of ledgers is decoded and encoded in steps, and again only where it changed.

The list is one message of protobuf, whose ledgers are one field each, so any run of whole fields is a message of its
own. An owner appends to a list and changes its last ledger, and retention cuts its front: all other runs of the list
before are found again by their bytes. What is new is judged here, all of it, and most of it is decoded when somebody
asks for it (``ledger_runs``).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from google.protobuf.message import DecodeError

from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.ledger_runs import RUN_LEDGERS, LedgerList, LedgerRun, PlainLedgers, listing
from tallystick.bookkeeper.wire.managed_ledgers import (
    COMPRESSED_BEYOND,
    compressed_front,
    decode_stream,
    decoded_ledgers,
    encode_stream,
    in_order,
    no_list,
    plain_bytes,
    plain_stream,
    readable,
)
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.streams_pb2 import StoredLedgers
from tallystick.codec.steps import Steps

CUT_RUNS = 3  # at the front of the list before, one of which the list has still

_ZLIB_BEGIN = b"\x78\x5e"  # RFC 1950: deflated, a window of 32 KiB, made fast


def list_decoding(data: bytes, *, where: str, known: Sequence[StreamLedger] = ()) -> Steps[StreamInfo]:
    """Returns at the end what ``decode_stream`` does. Raises MetadataError as that does. ``known`` are the ledgers of
    the list as it was before."""
    try:
        plain = plain_bytes(data)
        if len(plain) <= COMPRESSED_BEYOND:
            return decode_stream(data, where=where)
        ledgers, rest = yield from _decoding(plain, known)
    except DecodeError:
        return decode_stream(data, where=where)  # which says what is wrong, as soon as it begins
    except (ValueError, TypeError) as error:
        raise no_list(error, data, where) from error
    return replace(decode_stream(rest, where=where), ledgers=ledgers)


def list_encoding(info: StreamInfo) -> Steps[bytes]:
    """Returns at the end what ``encode_stream`` does, compressed by ZLIB. Raises UsageError as that does."""
    if len(info.ledgers) <= RUN_LEDGERS:
        return encode_stream(info)
    ledgers = yield from listing(info.ledgers)
    rest = plain_stream(replace(info, ledgers=ledgers.tail))
    plain = readable(b"".join([*(run.data for run in ledgers.runs), rest]))
    if len(plain) <= COMPRESSED_BEYOND:
        return plain
    blocks = [_ZLIB_BEGIN]
    for run in ledgers.runs:
        if not run.is_deflated:
            yield
        blocks.append(run.deflated)
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    blocks += [deflate.compress(rest), deflate.flush(), zlib.adler32(plain).to_bytes(4, "big")]
    return b"".join([compressed_front(len(plain), Compression.ZLIB), *blocks])


def _decoding(plain: bytes, known: Sequence[StreamLedger]) -> Steps[tuple[Sequence[StreamLedger], bytes]]:
    """Returns the ledgers, and all fields that are none."""
    front, kept, back = _known(plain, known)
    records, front_rest = _split(front)
    runs = [*(yield from _runs(records)), *kept]
    records, back_rest = _split(back)
    # The newest ledger is open, and the run before it is mostly plain.
    tail = tuple(decoded_ledgers(_fields(records[-1:])))
    ledgers = LedgerList([*runs, *(yield from _runs(records[:-1]))], tail)
    ends = [*((run.first, run.last) for run in ledgers.runs), *((each.ledger, each.ledger) for each in tail)]
    if any(before[1] >= after[0] for before, after in pairwise(ends)) or not all(map(_is_in_order, ledgers.runs)):
        ledgers = yield from listing(in_order(tuple(ledgers)))
    return ledgers if len(ledgers) > len(tail) else tail, front_rest + back_rest


def _runs(records: list[bytes]) -> Steps[list[LedgerRun]]:
    runs = []
    for at in range(0, len(records), RUN_LEDGERS):
        some = records[at : at + RUN_LEDGERS]
        data = _fields(some)
        runs.append(LedgerRun(data, PlainLedgers.of(some) or tuple(decoded_ledgers(data))))
        yield
    return runs


def _known(plain: bytes, known: Sequence[StreamLedger]) -> tuple[bytes, list[LedgerRun], bytes]:
    """Returns the runs that are known and there still, and what is before and behind them. If the first of them is
    found within a field, what is before it is cut off."""
    runs = known.runs if isinstance(known, LedgerList) else ()
    for cut, first in enumerate(runs[:CUT_RUNS]):
        begin = end = plain.find(first.data)
        if begin >= 0:
            kept = []
            for run in runs[cut:]:
                # A short one at the end grows: else there would be ever more of them.
                if not plain.startswith(run.data, end) or (run is runs[-1] and len(run.ledgers) < RUN_LEDGERS):
                    break
                kept.append(run)
                end += len(run.data)
            return plain[:begin], kept, plain[end:]
    return b"", [], plain


def _split(plain: bytes) -> tuple[list[bytes], bytes]:
    """Returns the ledgers, and all other fields. Raises DecodeError."""
    stored = StoredLedgers.FromString(plain)
    records = list(stored.ledgerInfo)
    stored.ClearField("ledgerInfo")
    return records, stored.SerializeToString()


def _fields(records: list[bytes]) -> bytes:
    return StoredLedgers(ledgerInfo=records).SerializeToString()


def _is_in_order(run: LedgerRun) -> bool:
    return run.is_plain or all(before.ledger < after.ledger for before, after in pairwise(run.ledgers))
