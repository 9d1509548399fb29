"""Whether two logs have the same bytes up to the end of the slave's. They are compared before anything is copied (R3).

The slave sends the CRC32C of the last pieces of its log, and the master computes its own over the same ranges. A record
holds the time when it was stored and its own offset, so equal bytes mean an equal history: where the last pieces have
no head of a record, as in a long message that its producer sent to both, or in the blank that ends a file, the head
before them is compared as well. The exception is a slave that copied from an original master after the two logs had
parted: no check could show that then.
"""

from __future__ import annotations

from tallystick.codec.checksum import crc32c
from tallystick.codec.records import SMALLEST, V1, V2
from tallystick.codec.steps import Steps
from tallystick.rocketmq.ha.log import ReplicatedLog
from tallystick.rocketmq.wire.ha import SlaveHello, Span

PROOF_BYTES = 256 * 1024  # of the end of a log: still in memory, as they were written last
MAX_SPANS = 8

_HEAD_BYTES = SMALLEST  # of a record: with its offset and store time
_MAGIC_AT, _OFFSET_AT = 4, 28
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (V1, V2))
_SEARCH_BYTES = 1 << 16  # at a time: offsets of such a piece have their first bytes in common

WIPE = "stop the slave, keep its store directory aside, start it with an empty one"


def spans_of(log: ReplicatedLog) -> Steps[tuple[Span, ...]]:
    """Returns the spans of the last pieces of a log, one for each file that they reach into, and before them that of
    the head of the record that is there or ends there. A step is some milliseconds at most: a producer may have filled
    a long message with what looks like heads."""
    spans: list[Span] = []
    offset = max(log.first, log.end - (PROOF_BYTES - _HEAD_BYTES))
    while offset < log.end:
        piece = log.slice(offset, log.end - offset)
        if not piece:
            break
        spans.append(Span(offset, len(piece), crc32c(piece)))
        offset += len(piece)
    spans = spans[-(MAX_SPANS - 1) :]
    head = (yield from _head_before(log, spans[0].offset)) if spans else None
    return tuple(spans) if head is None else (head, *spans)


def _head_before(log: ReplicatedLog, offset: int) -> Steps[Span | None]:
    """Returns the span of the last record's head that begins before ``offset``; None if there is none."""
    stop = offset
    while stop > log.first:
        start = max(log.first, (stop - 1) // _SEARCH_BYTES * _SEARCH_BYTES)
        while len(piece := log.slice(start, stop - start + _HEAD_BYTES)) < stop - start:
            if not piece:
                return None
            start += len(piece)  # the next file begins there
        at = _last_head(bytes(piece), start, stop)
        if at >= 0:
            return Span(start + at, _HEAD_BYTES, crc32c(piece[at : at + _HEAD_BYTES]))
        stop = start
        yield
    return None


def _last_head(data: bytes, start: int, stop: int) -> int:
    """Returns where in ``data``, which begins at ``start`` of the log, the last record before ``stop`` begins, known by
    its offset; -1 if none does. What a producer sends is no offset of its place but by chance."""
    common, at = (start // _SEARCH_BYTES).to_bytes(6, "big"), min(stop - start, len(data) - _HEAD_BYTES + 1)
    while (found_at := data.rfind(common, 0, max(0, at - 1 + _OFFSET_AT + len(common)))) >= _OFFSET_AT:
        at = found_at - _OFFSET_AT
        is_here = int.from_bytes(data[found_at : found_at + 8], "big") == start + at
        if is_here and data[at + _MAGIC_AT : at + _MAGIC_AT + 4] in _MAGICS:
            return at
    return -1


def objection(log: ReplicatedLog, hello: SlaveHello) -> str | None:
    """Returns why this slave must not be fed from this log, and what an operator can do; None if it may be fed."""
    if hello.end > log.end:
        return (
            f"the slave's log reaches to {hello.end}, the master's only to {log.end}: the master lost its end; "
            f"save the slave's log before anything else, then {WIPE}"
        )
    if hello.start is not None and not log.first <= hello.start <= log.end:
        return f"the slave goes on at {hello.start}, the master's log begins at {log.first}: {WIPE}"
    if hello.end and hello.start != hello.end:
        return "the slave does not go on where its log ends"
    if len(hello.spans) > MAX_SPANS or sum(span.size for span in hello.spans) > PROOF_BYTES:
        return "the slave's proof is longer than any of ours"
    if hello.first < hello.end and (not hello.spans or hello.spans[-1].offset + hello.spans[-1].size != hello.end):
        return "the slave proves nothing about the end of its log"
    if hello.spans and hello.spans[-1].offset < log.first:
        return f"the master has nothing before {log.first} to compare with the end of the slave's log: {WIPE}"
    for span in hello.spans:
        if log.first <= span.offset and _crc(log, span) != span.crc:
            return (
                f"the two logs differ between {span.offset} and {span.offset + span.size}; "
                f"compare them with: tally store check; then {WIPE}"
            )
    return None


def _crc(log: ReplicatedLog, span: Span) -> int | None:
    """Returns the master's CRC of a span, or None if the log does not have all of it."""
    crc, offset, end = 0, span.offset, span.offset + span.size
    while offset < end:
        piece = log.slice(offset, end - offset)
        if not piece:
            return None
        crc = crc32c(piece, crc)
        offset += len(piece)
    return crc
