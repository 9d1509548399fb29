"""What the driver looks up before a query is planned: the streams' ledgers, how far they can be read, and the bookies.

The only part of a query that opens the metadata. The end of an open ledger is asked of its newest ensemble, and nothing
is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.entries import EntryWalk
from tallystick.bookkeeper.stream.search import first_published
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import NoSuchStream, TallyError, UsageError
from tallystick.pipeline.bookies import Address, addresses_of, connect_here
from tallystick.pipeline.stream.bounds import StreamBound, StreamExtent
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import LedgerSpan, StreamPartition, plan
from tallystick.pipeline.stream.spans import StreamSpan, ledger_spans

AT_ONCE = 64  # streams whose ends are asked at the same time


@dataclass(frozen=True)
class StreamSurvey:
    """What a query reads: streams in ascending order, of each the ledgers in order; and all registered bookies."""

    spans: tuple[LedgerSpan, ...]
    addresses: Mapping[BookieId, Address]

    def __repr__(self) -> str:  # asyncio.run() asks its task for it
        return f"StreamSurvey({len(self.spans)} ledgers, {len(self.addresses)} bookies)"


async def survey(options: StreamSourceOptions) -> StreamSurvey:
    """Raises NoSuchStream, PositionTrimmed and NoSuchPosition (of a named one), UsageError, MetadataError, Unavailable
    and its kinds."""
    async with await connect_here(options.uri) as bk:
        return await survey_cluster(bk, options)


async def survey_cluster(bk: BookKeeper, options: StreamSourceOptions) -> StreamSurvey:
    """As ``survey``, over a client that is open already."""
    streams = await matching_streams(bk, options)
    if options.pattern is not None:
        if not streams:
            raise NoSuchStream("no stream matches subscribePattern", pattern=options.pattern.pattern)
        options.start.check(streams)
        options.end.check(streams)
    gate = asyncio.Semaphore(AT_ONCE)
    outcomes = await asyncio.gather(
        *(_stream_span(bk, gate, options, stream) for stream in streams), return_exceptions=True
    )
    spans: list[StreamSpan] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        spans.append(outcome)
    return await survey_spans(bk, options, spans)


async def survey_spans(bk: BookKeeper, options: StreamSourceOptions, spans: Sequence[StreamSpan]) -> StreamSurvey:
    """Returns what lies between positions that are decided."""
    ledgers = await ledger_spans(bk, spans, with_before=not options.is_raw, fail_on_data_loss=options.fail_on_data_loss)
    return StreamSurvey(ledgers, addresses_of(await bk.bookies()) if ledgers else {})


def partitions_of(survey: StreamSurvey, options: StreamSourceOptions) -> list[StreamPartition]:
    """Returns the plan by what a survey has."""
    return plan(
        survey.spans,
        survey.addresses,
        options.limits,
        is_raw=options.is_raw,
        fail_on_data_loss=options.fail_on_data_loss,
    )


async def matching_streams(bk: BookKeeper, options: StreamSourceOptions) -> Sequence[str]:
    """Returns the streams that the options name, or those that there are of the pattern; ascending."""
    if options.pattern is None:
        return options.streams
    return sorted([name async for name in bk.streams() if options.pattern.fullmatch(name)])


async def _stream_span(
    bk: BookKeeper, gate: asyncio.Semaphore, options: StreamSourceOptions, stream: str
) -> StreamSpan:
    async with gate:
        stream_list = await bk.stream_context.readers.lists.open(stream)
        walk = EntryWalk(bk, stream_list, _raise)
        try:
            end = await walk.end()
            ledgers = stream_list.info.ledgers
            extent = StreamExtent(stream, ledgers, end if ledgers else EARLIEST)

            async def position(bound: StreamBound) -> Position:
                ms = bound.timestamp_ms
                timed = None if ms is None else await first_published(walk, stream_list, ms)
                return bound.position(extent, timed, is_strict=options.fail_on_data_loss)

            start, stop = await position(options.start), await position(options.end)
        finally:
            await walk.close()
            stream_list.release()
    if start > stop and stream in {*options.start.named_positions, *options.end.named_positions}:
        raise UsageError("the query starts after its end in a stream", stream=stream, start=start, end=stop)
    return StreamSpan(extent, start, max(start, stop))


def _raise(position: Position, error: TallyError) -> None:
    raise error
