"""Whether two logs have the same bytes up to the end of the slave's. They are compared before anything is copied (R3).

The slave sends the CRC32C of the last pieces of its log, and the master computes its own over the same ranges. A record
holds the time when it was stored and its own offset, so equal bytes mean an equal history. The exception is a slave
that copied from an original master after the two logs had parted: no check could show that then.
"""

from __future__ import annotations

from tallystick.codec.checksum import crc32c
from tallystick.rocketmq.ha.log import ReplicatedLog
from tallystick.rocketmq.wire.ha import SlaveHello, Span

PROOF_BYTES = 256 * 1024  # of the end of a log: still in memory, as they were written last
MAX_SPANS = 8

WIPE = "stop the slave, keep its store directory aside, start it with an empty one"


def spans_of(log: ReplicatedLog) -> tuple[Span, ...]:
    """Returns the spans of the last pieces of a log, one for each file that they reach into."""
    spans: list[Span] = []
    offset = max(log.first, log.end - PROOF_BYTES)
    while offset < log.end:
        piece = log.slice(offset, log.end - offset)
        if not piece:
            break
        spans.append(Span(offset, len(piece), crc32c(piece)))
        offset += len(piece)
    return tuple(spans[-MAX_SPANS:])


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
