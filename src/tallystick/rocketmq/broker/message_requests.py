"""Messages and queue offsets, looked up one by one: by key, id, time, and at the ends of a queue."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.rocketmq.broker.answers import OK, Answer, refusal
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.store.values import TimeBoundary
from tallystick.rocketmq.wire import headers
from tallystick.rocketmq.wire.own_headers import MinOffsetAnswer
from tallystick.rocketmq.wire.record import IndexType
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

UNIQUE_KEY_MESSAGES = 32  # at most, of a query by unique key (defaultQueryMaxNum)
_INDEX_TYPES = {kind.value: kind for kind in IndexType}


class MessageRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self.answers: Mapping[int, Answer] = {
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def _query(self, peer: str, command: Command) -> Command:
        header = headers.QueryMessageHeader.of(command)
        kind = _INDEX_TYPES.get(header.index_type or "", IndexType.KEY)
        most = UNIQUE_KEY_MESSAGES if header.unique_key else max(0, header.max_num)
        found = self._store.query(header.topic, header.key, most, header.begin_timestamp, header.end_timestamp, kind)
        fields = headers.QueryMessageAnswer(*self._store.indexed).to_fields()
        if not found:
            remark = "can not find message, maybe time range not correct"
            return command.answer(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return command.answer(OK, None, fields, parts=found)

    def _view(self, peer: str, command: Command) -> Command:
        offset = headers.ViewMessageHeader.of(command).offset
        record = self._store.record(offset)
        if record is None:
            raise refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return command.answer(OK, body=record)

    def _search(self, peer: str, command: Command) -> Command:
        header = headers.SearchOffsetHeader.of(command)
        boundary = TimeBoundary.UPPER if (header.boundary_type or "").upper() == "UPPER" else TimeBoundary.LOWER
        offset = self._store.offset_at(header.topic, header.queue_id, header.timestamp, boundary)
        return command.answer(OK, None, headers.OffsetAnswer(offset).to_fields())

    def _max_offset(self, peer: str, command: Command) -> Command:
        header = headers.QueueHeader.of(command)
        _, end = self._store.queue_range(header.topic, header.queue_id)
        return command.answer(OK, None, headers.OffsetAnswer(end).to_fields())

    def _min_offset(self, peer: str, command: Command) -> Command:
        header = headers.QueueHeader.of(command)
        first, _ = self._store.queue_range(header.topic, header.queue_id)
        lacking = self._store.lacks_beginning(header.topic, header.queue_id) or None
        return command.answer(OK, "", MinOffsetAnswer(first, lacking).to_fields())

    def _earliest(self, peer: str, command: Command) -> Command:
        header = headers.QueueHeader.of(command)
        first, end = self._store.queue_range(header.topic, header.queue_id)
        stored_ms = self._store.stored_at(header.topic, header.queue_id, first) if end > first else -1
        return command.answer(OK, None, headers.TimestampAnswer(stored_ms).to_fields())
