"""Requests for how far a sink has come, and the pages of all sinks for slaves of ours (``pages.PagedTable``)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tallystick.rocketmq.broker.pages import Page
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import OK, refusal
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.headers import SinkStateHeader, SinkStateResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

SINKS = "sinks"
PAGE_PARTITIONS = 4096
_encode = msgspec.json.Encoder().encode


class SinkRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._standing, self._store = parts.standing, parts.store
        self.handlers: Mapping[int, Handler] = {RequestCode.GET_SINK_STATE: self._state}

    def _state(self, link: Link, command: Command, reply: Reply) -> Command:
        header = SinkStateHeader.of(command)
        if self._standing.is_slave:
            raise refusal(ResponseCode.SYSTEM_BUSY, "this is a slave: its master knows how far a sink has come")
        state = self._store.sinks.find(header.topic, header.application)
        if state is None:
            return command.response(OK, None, SinkStateResponse().to_fields())
        newest = state.partitions.get(header.partition)
        response = SinkStateResponse(
            query=state.query,
            batch=state.batch,
            partitions=state.partition_count,
            brokers=state.brokers,
            sequence=None if newest is None else newest.sequence,
            queue_id=None if newest is None else newest.queue_id,
        )
        return command.response(OK, None, response.to_fields())


class SinkPages:
    """The pages of all sinks, in the order in which these came."""

    snapshot = 0  # it is the same table in the process's whole life

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def page(self, start: int) -> Page:
        sinks = self._store.sinks
        index = max(0, start - sinks.removals)
        rows = sinks.rows(index, PAGE_PARTITIONS)
        index += len(rows)
        return Page(_encode(rows), index + sinks.removals if index < sinks.count else None)
