"""Requests for how far a sink has come and to forget one, and the pages of all for slaves (``pages.PagedTable``)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tallystick.rocketmq.broker.pages import Page
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import OK, check_is_master, check_pending, refusal, respond_when_noted
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.headers import SinkStateHeader, SinkStateResponse
from tallystick.rocketmq.wire.operator_headers import ForgetSinkHeader
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

SINKS = "sinks"
PAGE_PARTITIONS = 4096
ALIVE_MS = 600_000  # since its last message: then it is not forgotten unless that is forced
_encode = msgspec.json.Encoder().encode


class SinkRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._standing, self._store = parts, parts.standing, parts.store
        self.handlers: Mapping[int, Handler] = {
            RequestCode.GET_SINK_STATE: self._state,
            RequestCode.FORGET_SINK: self._forget,
        }

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

    def _forget(self, link: Link, command: Command, reply: Reply) -> Command | None:
        """Slaves copy it with the table. The response waits for the disk, also where it is forgotten already: it may be
        asked for again as it could not be made durable."""
        header, parts, sinks = ForgetSinkHeader.of(command), self._parts, self._store.sinks
        check_is_master(parts)
        check_pending(parts)
        state, now_ms = sinks.find(header.topic, header.application), parts.clock.wall_ms()
        what = f"application {header.application} in topic {header.topic}"
        if state is None:
            response = command.response(ResponseCode.QUERY_NOT_FOUND, f"{what} is not recorded here")
            if not sinks.is_forgotten(header.topic, header.application):
                return response
            respond_when_noted(parts, self._store.note_sinks, response, reply)
            return None
        if not header.force and now_ms - state.stored_ms < ALIVE_MS:
            remark = f"{what} sent {max(0, now_ms - state.stored_ms) // 1000} s ago: what it repeats would come twice"
            raise refusal(ResponseCode.SYSTEM_ERROR, f"{remark}. End it, and force it if you must")
        count, batch = len(state.partitions), state.batch
        if not sinks.forget_application(header.topic, header.application, now_ms):
            raise refusal(ResponseCode.SYSTEM_ERROR, "too many are forgotten: they expire with sinkExpireDays")
        parts.events.emit(
            "sink forgotten",
            topic=header.topic,
            application=header.application,
            batch=batch,
            partitions=count,
            peer=link.peer,
        )
        respond_when_noted(parts, self._store.note_sinks, command.response(OK), reply)
        return None


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
