"""The backlog quota of a stream (``BacklogQuotaManager``): how much it has behind its slowest durable cursor at most.

The backlog is measured when it may be too much: it was so many bytes when it was measured last, and grew by what was
appended since, at most. While it is too much it is measured each second. What happens then is the policy's: appends
wait or fail until it is within the quota, or the slowest cursors pass over the oldest messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tallystick.bookkeeper.stream.append_flow import AppendFlow
from tallystick.bookkeeper.stream.backlog import backlog_bytes, last_beyond
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.expiry import pass_over
from tallystick.bookkeeper.stream.names import decoded
from tallystick.bookkeeper.stream.owned_list import OwnedList
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.trim import GiveWay, cursor_marks
from tallystick.bookkeeper.wire.stream_values import StreamInfo
from tallystick.errors import BacklogFull, StreamClosed, StreamFenced, TallyError

EVERY_S = 1.0  # it is measured, at most
EVICTED_TO = 90  # per cent of the quota: so that not every append evicts


class BacklogQuota:
    """Measures the backlog for the owner of a stream that has a quota. ``counted`` returns the list with what the open
    ledger has; ``wake`` is called when there is something to measure, at ``due_at``; ``give_way`` as in ``trim``."""

    __slots__ = ("_context", "_counted", "_flow", "_give_way", "_list", "_measured_at", "_settings", "_stream", "_wake",
                 "due_at")  # fmt: skip

    def __init__(
        self,
        context: StreamContext,
        stream: str,
        settings: StreamSettings,
        stored_list: OwnedList,
        flow: AppendFlow,
        *,
        counted: Callable[[], StreamInfo],
        wake: Callable[[], None],
        give_way: GiveWay,
    ) -> None:
        self._context, self._stream, self._settings, self._list = context, stream, settings, stored_list
        self._flow, self._counted, self._wake, self._give_way = flow, counted, wake, give_way
        self._measured_at = -math.inf
        self.due_at = math.inf
        flow.watch_quota(self.exceeded, waits=settings.backlog_policy == "producer_request_hold")

    def exceeded(self) -> None:
        """There may be more than the quota by now."""
        if self.due_at == math.inf:
            self.due_at = max(self._now(), self._measured_at + EVERY_S)
            self._wake()

    @property
    def is_due(self) -> bool:
        return self.due_at <= self._now()

    async def measure(self) -> None:
        """Do what the policy says: for ``work`` that is ``alone``. Raises StreamFenced."""
        self._measured_at, self.due_at = self._now(), math.inf
        try:
            await self._measure()
        except (StreamFenced, StreamClosed):
            raise
        except TallyError as error:
            self._emit("backlog not measured", reason=error)
        if self._flow.full is not None:
            self.due_at = self._measured_at + EVERY_S

    async def _measure(self) -> None:
        settings, flow = self._settings, self._flow
        marks = await cursor_marks(self._context, self._stream, self._give_way)
        info = self._counted()
        backlog = max([backlog_bytes(info, mark) for mark in marks.values()], default=0)
        left = settings.backlog_quota_bytes - backlog
        flow.allow(left)
        if left >= 0:
            if flow.full is not None:
                flow.resume()
                self._emit("backlog within its quota", bytes=backlog)
        elif settings.backlog_policy == "consumer_backlog_eviction":
            up_to = last_beyond(info, settings.backlog_quota_bytes * EVICTED_TO // 100)
            await pass_over(
                self._context,
                self._stream,
                self._list,
                up_to,
                settings,
                reason="backlog quota",
                give_way=self._give_way,
            )
        else:
            is_new, slowest = flow.full is None, min(marks, key=lambda cursor: marks[cursor])
            flow.full = BacklogFull(
                stream=self._stream, cursor=decoded(slowest), bytes=backlog, quota_bytes=settings.backlog_quota_bytes
            )
            if is_new:
                self._emit("backlog exceeds its quota", bytes=backlog, cursor=slowest, policy=settings.backlog_policy)

    def _now(self) -> float:
        return self._context.context.clock.now()

    def _emit(self, kind: str, **fields: object) -> None:
        self._context.context.events.emit(kind, stream=self._stream, **fields)
