"""Requests for single messages and queue offsets: by key, id and time, and at the ends of a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice

from tallystick.errors import BrokerError
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import OK, refusal, respond_in_slices
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.values import TimeBoundary
from tallystick.rocketmq.wire import headers
from tallystick.rocketmq.wire.own_headers import QueueLimitResponse
from tallystick.rocketmq.wire.record import IndexType, decode_message
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

UNIQUE_KEY_MESSAGES = 32  # at most, of a query by unique key (defaultQueryMaxNum)
MOST_STEPS = 8000  # of a query, that find nothing: a million of entries of the index, and some seconds
_STEPS_AT_ONCE = 16
_INDEX_TYPES = {kind.value: kind for kind in IndexType}


class MessageRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._store = parts, parts.store
        self.handlers: Mapping[int, Handler] = {
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def _query(self, link: Link, command: Command, reply: Reply) -> Command | None:
        header = headers.QueryMessageHeader.of(command)
        kind = _INDEX_TYPES.get(header.index_type or "", IndexType.KEY)
        most = UNIQUE_KEY_MESSAGES if header.unique_key else max(0, header.max_num)
        matches = self._store.look_for(
            header.topic, header.key, most, header.begin_timestamp, header.end_timestamp, kind
        )
        response = command.response(OK, None, headers.QueryMessageResponse(*self._store.indexed).to_fields())
        pieces = _bounded(matches)
        try:
            at_once = list(islice(pieces, _STEPS_AT_ONCE))
        except BrokerError as error:
            response.code, response.remark = error.response_code, error.message
            return response
        if len(at_once) == _STEPS_AT_ONCE:
            too_long = f"the messages with key {header.key}; ask for fewer"
            respond_in_slices(self._parts, response, chain(at_once, pieces), too_long, reply)
            return None
        response.parts = [piece for piece in at_once if piece]
        return response

    def _view(self, link: Link, command: Command, reply: Reply) -> Command:
        header = headers.ViewMessageHeader.of(command)
        offset = header.offset
        record = self._store.record(offset)
        if record is None or not self._may_be_seen(record, header.topic):
            raise refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return command.response(OK, body=record)

    def _may_be_seen(self, record: bytes, topic: str | None) -> bool:
        """Whether the message is of the topic that the request was allowed for."""
        return not self._parts.settings.access.authorizes or not topic or decode_message(record).topic == topic

    def _search(self, link: Link, command: Command, reply: Reply) -> Command:
        header = headers.SearchOffsetHeader.of(command)
        boundary = TimeBoundary.UPPER if (header.boundary_type or "").upper() == "UPPER" else TimeBoundary.LOWER
        offset = self._store.offset_at(header.topic, header.queue_id, header.timestamp, boundary)
        return command.response(OK, None, headers.OffsetResponse(offset).to_fields())

    def _max_offset(self, link: Link, command: Command, reply: Reply) -> Command:
        header = headers.QueueHeader.of(command)
        _, end = self._store.queue_range(header.topic, header.queue_id)
        lacking = (not end and self._store.lacks_beginning(header.topic, header.queue_id)) or None
        return command.response(OK, None, QueueLimitResponse(end, lacking).to_fields())

    def _min_offset(self, link: Link, command: Command, reply: Reply) -> Command:
        header = headers.QueueHeader.of(command)
        first, _ = self._store.queue_range(header.topic, header.queue_id)
        lacking = self._store.lacks_beginning(header.topic, header.queue_id) or None
        return command.response(OK, "", QueueLimitResponse(first, lacking).to_fields())

    def _earliest(self, link: Link, command: Command, reply: Reply) -> Command:
        header = headers.QueueHeader.of(command)
        first, end = self._store.queue_range(header.topic, header.queue_id)
        stored_ms = self._store.stored_at(header.topic, header.queue_id, first) if end > first else -1
        return command.response(OK, None, headers.TimestampResponse(stored_ms).to_fields())


def _bounded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the pieces. Raises BrokerError when too many have no message, and at their end if none has."""
    steps, has_message = 0, False
    for piece in pieces:
        has_message, steps = has_message or bool(piece), steps + (not piece)
        if steps > MOST_STEPS:
            remark = "more than a million messages with such keys are later than these: ask for later ones"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        yield piece
    if not has_message:
        raise refusal(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
