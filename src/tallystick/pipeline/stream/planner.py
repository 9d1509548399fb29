"""What the planner process of a streaming query decides: where a batch begins and ends, and its partitions.

A stream that is new to the query enters with its first position, and is read from the batch after that on: so each
batch says where it begins in every stream, and is the same when it is planned again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import NoSuchPosition, NoSuchStream, PositionTrimmed
from tallystick.pipeline.lag import Lag
from tallystick.pipeline.notes import note
from tallystick.pipeline.planner import QueryPlanner
from tallystick.pipeline.stream.admit import admit, backlog, entries_behind
from tallystick.pipeline.stream.bounds import StreamExtent
from tallystick.pipeline.stream.follow import FollowedStreams, StreamFollower
from tallystick.pipeline.stream.lag import lag_of
from tallystick.pipeline.stream.offsets import Positions, from_offset, to_offset
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.schema import FORMAT
from tallystick.pipeline.stream.spans import StreamSpan
from tallystick.pipeline.stream.survey import partitions_of, survey_spans
from tallystick.pipeline.trigger import TriggerDelay, TriggerLimits

GO_ON = "failOnDataLoss=false goes on with what is left"


def planner(options: StreamSourceOptions) -> QueryPlanner[StreamFollower, Positions, StreamPartition]:
    return QueryPlanner(FollowedStreams(options), StreamDecisions(options), to_offset, from_offset)


class StreamDecisions:
    """See the module. ``heads`` are the streams as they were seen last.

    Of thousands of streams few have something new. The others are ``_quiet``: a stream is read to the end of an extent,
    and as long as the follower gives just that one, and Spark that position, nothing is to be decided anew.
    """

    def __init__(self, options: StreamSourceOptions) -> None:
        self.options = options
        self.heads: Mapping[str, StreamExtent] | None = None
        self._reached: Positions | None = None
        self._reached_of: Mapping[str, StreamExtent] | None = None
        self._named = frozenset(options.streams)
        self._quiet: dict[str, tuple[StreamExtent, Position]] = {}
        self._ends: Positions = {}  # where the batch ends that was decided last, of streams that are not quiet
        self._is_frozen = False
        self._delay = TriggerDelay()

    @property
    def may_begin_later(self) -> bool:
        """Whether ``initial`` returns other positions when there is more."""
        return self.options.start.is_moving

    def reached(self) -> Positions | None:
        """Returns how far all streams reached when it was last looked; None before that."""
        if self.heads is not self._reached_of:
            heads = self._reached_of = self.heads
            self._reached = None if heads is None else {stream: extent.end for stream, extent in heads.items()}
        return self._reached

    async def lag(self, follower: StreamFollower) -> Lag:
        """Returns what the batch that was decided last leaves. Raises MetadataError."""
        return await lag_of(follower.bk, self._ends, self.heads or {}, is_raw=self.options.is_raw)

    async def freeze(self, follower: StreamFollower) -> None:
        """From now on nothing that comes is seen (Trigger.AvailableNow)."""
        self.heads = await self._all(follower)
        self._is_frozen = True

    async def initial(self, follower: StreamFollower) -> dict[str, Position]:
        """Returns where a query begins. Raises NoSuchStream, PositionTrimmed, NoSuchPosition, UsageError."""
        bound = self.options.start
        extents = self.heads if self._is_frozen and self.heads is not None else await self._all(follower)
        self._require_named(extents, {})
        bound.check(extents)
        positions: dict[str, Position] = {}
        for stream, extent in extents.items():
            ms = bound.timestamp_ms
            timed = None if ms is None else await follower.first_published(stream, ms)
            positions[stream] = bound.position(extent, timed, is_strict=self.options.fail_on_data_loss)
        if follower.cursors is not None:
            await follower.cursors.open(positions)
        return positions

    async def latest(self, follower: StreamFollower, positions: Positions, limits: TriggerLimits) -> Positions:
        """Returns where the batch that begins at ``positions`` ends. Raises NoSuchStream, PositionTrimmed and
        NoSuchPosition for what is lost, unless the options say to go on."""
        # One that the options do not name any more is left out; one that they do name and is not there is lost.
        positions = {stream: at for stream, at in positions.items() if stream in self._quiet or self._is_wanted(stream)}
        extents = await self._extents(follower, positions)
        for stream in sorted(positions.keys() - extents.keys()):
            self._lost(NoSuchStream("a stream that the query reads is deleted", stream=stream))
            self._quiet.pop(stream, None)
        positions = {stream: at for stream, at in positions.items() if stream in extents}
        if follower.cursors is not None:
            await follower.cursors.open(positions)
        starts = {
            stream: self._resumed(follower, at, extents[stream])
            for stream, at in positions.items()
            if not self._is_quiet(stream, at, extents[stream])
        }
        new = {stream: extent.first for stream, extent in extents.items() if stream not in positions}
        now = follower.bk.context.clock.now()
        if not (new or self._is_frozen) and self._delay.waits(limits, entries_behind(starts, extents), now):
            self._decided(starts, extents)
            return positions
        self._delay.batch_began(now)
        ends = admit(starts, {stream: extents[stream] for stream in starts}, limits)
        if follower.cursors is not None:
            await follower.cursors.open(new)
        self._decided({**ends, **new}, extents)
        return {**positions, **self._ends}

    async def commit(self, follower: StreamFollower, positions: Positions) -> None:
        """All before the positions is read, and its rows are where they should be."""
        if follower.cursors is not None:
            await follower.cursors.move(positions)

    async def partitions(self, follower: StreamFollower, starts: Positions, ends: Positions) -> list[StreamPartition]:
        """Returns the partitions of a batch, which hang on its two ends alone. Raises as ``latest``."""
        if follower.cursors is not None:
            await follower.cursors.open(starts)
        spans: list[StreamSpan] = []
        for stream, end in ends.items():
            start = starts.get(stream, end)  # one that is new is not read yet
            if start >= end:  # a first batch has nothing, and may be planned again when "latest" is later
                continue
            try:
                extent = await follower.extent_to(stream, end)
            except NoSuchStream:
                self._lost(NoSuchStream("a stream that the query reads is deleted", stream=stream))
                continue
            spans.append(StreamSpan(extent, self._resumed(follower, start, extent), end))
        return partitions_of(await survey_spans(follower.bk, self.options, spans), self.options)

    async def _extents(self, follower: StreamFollower, positions: Positions) -> Mapping[str, StreamExtent]:
        extents = self.heads
        if extents is None or not self._is_frozen:
            new = [stream for stream in await follower.streams() if stream not in positions]
            extents = await follower.recent_extents({**positions, **dict.fromkeys(new, EARLIEST)})
        if self.options.fail_on_data_loss:
            self._require_named(extents, positions)
        self.heads = extents
        return extents

    async def _all(self, follower: StreamFollower) -> Mapping[str, StreamExtent]:
        return await follower.extents(dict.fromkeys(await follower.streams(), EARLIEST), is_patient=False)

    def _require_named(self, extents: Mapping[str, StreamExtent], positions: Positions) -> None:
        """Raises NoSuchStream for one that the options name, and that neither is there nor was read."""
        for stream in self.options.streams:
            if stream not in extents and stream not in positions:
                raise NoSuchStream(stream=stream)

    def _is_wanted(self, stream: str) -> bool:
        pattern = self.options.pattern
        return stream in self._named if pattern is None else pattern.fullmatch(stream) is not None

    def _is_quiet(self, stream: str, position: Position, extent: StreamExtent) -> bool:
        """Whether a stream was read to the end of this very extent, which is at this position."""
        read_to = self._quiet.get(stream)
        return read_to is not None and read_to[0] is extent and read_to[1] == position

    def _decided(self, ends: Positions, extents: Mapping[str, StreamExtent]) -> None:
        """The batch that was decided last ends there, in the streams that were not quiet."""
        self._ends = ends
        for stream, at in ends.items():
            if backlog(extents[stream], at):
                self._quiet.pop(stream, None)
            else:
                self._quiet[stream] = extents[stream], at

    def _resumed(self, follower: StreamFollower, position: Position, extent: StreamExtent) -> Position:
        """Returns where reading goes on in a stream."""
        if self._is_frozen and position >= extent.end:
            return position
        try:
            return extent.next(position)
        except PositionTrimmed as error:
            if not follower.is_read(extent, position):
                self._lost(error)
            return extent.first
        except NoSuchPosition as error:
            self._lost(error)
            return extent.end

    def _lost(self, error: NoSuchStream | NoSuchPosition) -> None:
        if self.options.fail_on_data_loss:
            raise type(error)(f"{error.message}: rows may be lost; {GO_ON}", **error.fields)
        note(FORMAT, f"{error}; the query goes on with what is left")
