"""The planner process of a streaming query: Spark's calls, one after another, to what a format decides on its loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tallystick.errors import TallyError
from tallystick.pipeline.lag import Lag
from tallystick.pipeline.offsets import Offset
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.pipeline.worker import ClientT, Peers, TaskWorker

ClientT_contra = TypeVar("ClientT_contra", contravariant=True)
PositionsT = TypeVar("PositionsT")
PartitionT = TypeVar("PartitionT")


class Decisions(Protocol[ClientT_contra, PositionsT, PartitionT]):
    """Where batches begin and end, and their partitions."""

    @property
    def may_begin_later(self) -> bool:
        """Whether ``initial`` returns other positions when there is more: of ``latest``, say."""
        ...

    async def freeze(self, client: ClientT_contra, /) -> None:
        """From now on nothing that comes is seen (Trigger.AvailableNow)."""
        ...

    async def initial(self, client: ClientT_contra, /) -> PositionsT: ...

    async def latest(self, client: ClientT_contra, positions: PositionsT, limits: TriggerLimits, /) -> PositionsT: ...

    async def partitions(self, client: ClientT_contra, starts: PositionsT, ends: PositionsT, /) -> list[PartitionT]: ...

    async def commit(self, client: ClientT_contra, positions: PositionsT, /) -> None: ...

    def reached(self) -> PositionsT | None:
        """Returns how far all reached when it was last looked; None before that."""
        ...

    async def lag(self, client: ClientT_contra, /) -> Lag:
        """Returns what the batch that was decided last leaves of what is reached. Raises as reading does."""
        ...


class QueryPlanner(Generic[ClientT, PositionsT, PartitionT]):
    """Called from one thread, which waits for its loop's. ``close`` it."""

    def __init__(
        self,
        peers: Peers[ClientT],
        decisions: Decisions[ClientT, PositionsT, PartitionT],
        to_offset: Callable[[PositionsT], Offset],
        from_offset: Callable[[Any], PositionsT],
    ) -> None:
        self._decisions, self._to_offset, self._from_offset = decisions, to_offset, from_offset
        self._worker = TaskWorker(peers)
        self._initial: Offset | None = None
        self._has_planned = False
        # What Spark hands over again and again: of thousands of logs neither form is made anew while nothing changes.
        self._forms: deque[tuple[Offset, PositionsT]] = deque(maxlen=3)

    def initial(self) -> Offset:
        """Returns where a query begins. Spark asks for it to decide the first batch, again to plan that, and once more
        when a query is restarted that has not finished it."""
        if self._initial is None:
            self._initial = self._to_offset(self._worker.ask(self._decisions.initial))
        return self._initial

    def freeze(self) -> None:
        self._worker.ask(self._decisions.freeze)

    def latest(self, start: Offset, limits: TriggerLimits) -> Offset:
        if self._decisions.may_begin_later and start == self._initial and not self._has_planned:
            return start  # nothing is in the first batch but where the query begins, so that the checkpoint has that
        positions = self._decoded(start)
        ends = self._worker.ask(lambda client: self._decisions.latest(client, positions, limits))
        return start if ends == positions else self._encoded(ends)

    def heads(self) -> Offset | None:
        """Returns how far all reached, and the lag, unless that cannot be told now."""
        positions = self._decisions.reached()
        if positions is None:
            return None
        try:
            lag = self._worker.ask(self._decisions.lag)
        except TallyError:  # which whoever reads it will hear of
            return self._encoded(positions)
        return {**self._encoded(positions), "lag": lag.to_json()}

    def partitions(self, start: Offset, end: Offset) -> list[PartitionT]:
        self._has_planned = True
        starts, ends = self._decoded(start), self._decoded(end)
        return self._worker.ask(lambda client: self._decisions.partitions(client, starts, ends))

    def commit(self, end: Offset) -> None:
        positions = self._decoded(end)
        self._worker.ask(lambda client: self._decisions.commit(client, positions))

    def close(self) -> None:
        self._worker.close()

    def _decoded(self, offset: Offset) -> PositionsT:
        for form, positions in self._forms:
            if form == offset:
                return positions
        positions = self._from_offset(offset)
        self._forms.append((offset, positions))
        return positions

    def _encoded(self, positions: PositionsT) -> Offset:
        for form, same in self._forms:
            if same is positions:
                return form
        offset = self._to_offset(positions)
        self._forms.append((offset, positions))
        return offset
