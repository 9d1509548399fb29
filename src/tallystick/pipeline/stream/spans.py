"""The entries between two positions of a stream, ledger by ledger: what a plan is made of.

Only ledgers between the positions are looked up, and those right before them, where messages that came in chunks may
begin. How many bytes lie between two positions is
told by the entries there, whatever has come behind them: so that a plan made again is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tallystick.bookkeeper.ledger.ranges import Range, ranges_of
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.ledger_list import count_of
from tallystick.bookkeeper.wire.metadata import closed_end, decode
from tallystick.bookkeeper.wire.stream_values import Position, StreamLedger
from tallystick.bookkeeper.wire.values import EntryId, LedgerId, LedgerMetadata
from tallystick.errors import NoSuchLedger, Unavailable
from tallystick.pipeline.entry_sizes import planned_size
from tallystick.pipeline.notes import note
from tallystick.pipeline.stream.bounds import StreamExtent
from tallystick.pipeline.stream.plan import LedgerSpan
from tallystick.pipeline.stream.schema import FORMAT

TOGETHER = 1000  # ledgers whose metadata are read in one call
BEFORE_ENTRIES = 1000  # so many entries before a ledger are within reach, if these many ledgers have them
BEFORE_LEDGERS = 4


class StreamSpan(NamedTuple):
    """The entries of a stream from ``start`` to before ``end``."""

    extent: StreamExtent
    start: Position
    end: Position

    def __repr__(self) -> str:
        return f"StreamSpan({self.extent.stream}, {self.start}, {self.end})"

    @property
    def ledgers(self) -> Sequence[StreamLedger]:
        """The ledgers that may have such entries."""
        extent = self.extent
        stop = self.end if self.end.entry else self.end._replace(ledger=self.end.ledger - 1)
        return extent.ledgers[extent.index(self.start.ledger) : extent.index(stop.ledger + 1)]

    def before(self, listed: StreamLedger) -> Sequence[StreamLedger]:
        """The ledgers right before one, as far as a message that came in chunks may begin there."""
        index = first = self.extent.index(listed.ledger)
        entries = 0
        while first and index - first < BEFORE_LEDGERS and entries < BEFORE_ENTRIES:
            first -= 1
            entries += count_of(self.extent.ledgers[first]) or 0
        return self.extent.ledgers[first:index]


class StoredLedger(NamedTuple):
    """What the metadata say of a ledger."""

    metadata: LedgerMetadata
    last: EntryId | None  # of a closed one
    length: int


async def ledger_spans(
    bk: BookKeeper, spans: Sequence[StreamSpan], *, with_before: bool, fail_on_data_loss: bool
) -> tuple[LedgerSpan, ...]:
    """Returns what has entries. ``with_before``: also what is before each. ``fail_on_data_loss``: raises NoSuchLedger
    for one that is deleted, which is left out otherwise. Raises as a reader of ledgers does."""
    not_empty = [span for span in spans if span.start < span.end]
    ids = {listed.ledger for span in not_empty for listed in span.ledgers}
    if with_before:
        ids |= {listed.ledger for span in not_empty for first in span.ledgers[:1] for listed in span.before(first)}
    ledgers = await stored_ledgers(bk, sorted(ids))
    stored_spans: list[LedgerSpan] = []
    for span in not_empty:
        for listed in span.ledgers:
            try:
                stored_spans += await _of_ledger(
                    bk, span, listed, ledgers, with_before=with_before, fail_on_data_loss=fail_on_data_loss
                )
            except NoSuchLedger as error:
                if fail_on_data_loss:
                    raise
                note(FORMAT, f"a ledger is left out: stream={span.extent.stream} {error}")
    return tuple(stored_spans)


async def stored_ledgers(bk: BookKeeper, ids: Sequence[LedgerId]) -> Mapping[LedgerId, StoredLedger]:
    """Returns those of some ledgers that exist. Raises MetadataError."""
    ledgers: dict[LedgerId, StoredLedger] = {}
    for at in range(0, len(ids), TOGETHER):
        nodes = await bk.context.driver.read_ledgers(ids[at : at + TOGETHER])
        for ledger, node in nodes.items():
            if (end := closed_end(node.data)) is not None:
                ledgers[ledger] = StoredLedger(end.common, end.last_entry, end.length)
                continue
            metadata = decode(node.data, where=f"the metadata of ledger {ledger}", ctime_ms=node.ctime_ms)
            last = metadata.last_entry if metadata.is_closed else None
            ledgers[ledger] = StoredLedger(metadata, last, metadata.length)
    return ledgers


async def _of_ledger(
    bk: BookKeeper,
    span: StreamSpan,
    listed: StreamLedger,
    ledgers: Mapping[LedgerId, StoredLedger],
    *,
    with_before: bool,
    fail_on_data_loss: bool,
) -> list[LedgerSpan]:
    """Returns the entries of one ledger, if there are any."""
    stream, ledger = span.extent.stream, ledgers.get(listed.ledger)
    if ledger is None:
        reason = "was moved to other storage (offloaded), which only its Pulsar broker reads"
        raise NoSuchLedger(
            f"a ledger of the stream {reason if listed.is_offloaded else 'is deleted'}",
            stream=stream,
            ledger=listed.ledger,
        )
    first = span.start.entry if listed.ledger == span.start.ledger else 0
    last = span.end.entry - 1 if listed.ledger == span.end.ledger else _last(stream, listed, ledger)
    if first > last:
        return []
    size = ledger.length
    if first or last != ledger.last:
        size = await planned_size(
            bk.context.bookies, listed.ledger, ledger.metadata, first, last, fail_on_data_loss=fail_on_data_loss
        )
    before = [range_ for each in span.before(listed) for range_ in _whole(each, ledgers)] if with_before else ()
    return [LedgerSpan(stream, listed.ledger, ledger.metadata, first, last, size, tuple(before))]


def _last(stream: str, listed: StreamLedger, ledger: StoredLedger) -> EntryId:
    """Returns the last entry of a ledger that has a successor."""
    if ledger.last is not None:
        return ledger.last
    if (count := count_of(listed)) is not None:
        return count - 1
    raise Unavailable(
        "a ledger of the stream is not closed yet, and there is another one behind it: try again",
        stream=stream,
        ledger=listed.ledger,
    )


def _whole(listed: StreamLedger, ledgers: Mapping[LedgerId, StoredLedger]) -> tuple[Range, ...]:
    """Returns all entries of a ledger before; none of one that is deleted by now, or not closed."""
    ledger = ledgers.get(listed.ledger)
    if ledger is None or ledger.last is None or ledger.last < 0:
        return ()
    return tuple(ranges_of(listed.ledger, ledger.metadata, 0, ledger.last))
