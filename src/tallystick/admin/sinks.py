"""The applications whose messages brokers store once: how far each has come, and to forget one."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from tallystick.admin.brokers import BrokerProcess, Operator, list_processes
from tallystick.errors import BrokerError, NotFound, RemoteProtocolError
from tallystick.rocketmq.broker.sink_requests import SINKS
from tallystick.rocketmq.store.sink_table import SinkBatch
from tallystick.rocketmq.wire.headers import TablePageHeader, TablePageResponse
from tallystick.rocketmq.wire.operator_headers import ForgetSinkHeader
from tallystick.rocketmq.wire.sink_identity import name_part
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.keyfile import parse_properties

DAY_MS = 24 * 3600 * 1000
_decode = msgspec.json.Decoder(list[SinkBatch]).decode


@dataclass(frozen=True)
class SinkAt:
    """How far an application has come in a topic, at one master: its newest batch, in so many ``partitions`` there."""

    broker: str
    topic: str
    application: str
    query: str
    batch: int
    partitions: int
    stored_ms: int  # when its last message came
    expires_ms: int | None  # when it is forgotten if nothing comes; None if the broker does not say it


async def list_sinks(operator: Operator, topic: str | None = None) -> list[SinkAt]:
    """Returns those of all masters, or of one topic. Originals have none. Raises BrokerError, Unavailable."""
    sinks = list[SinkAt]()
    for process in await _masters(operator):
        rows = await _rows(operator, process.address)
        expire_ms = await _expire_ms(operator, process.address) if rows else None
        for row in rows:
            if row.partitions and topic in (None, row.topic):
                stored_ms = max(last.stored_ms for last in row.partitions)
                expires_ms = None if expire_ms is None else stored_ms + expire_ms
                names = row.topic, unquote(row.application), unquote(row.query)
                sinks.append(SinkAt(process.broker, *names, row.batch, len(row.partitions), stored_ms, expires_ms))
    return sorted(sinks, key=lambda one: (one.topic, one.application, one.broker))


async def forget_sink(operator: Operator, topic: str, application: str, *, force: bool = False) -> list[str]:
    """Forget an application at all masters that have it. Returns their names. ``force``: though it sent just now.

    Raises NotFound if none has it, BrokerError, Unavailable.
    """
    header = ForgetSinkHeader(topic=topic, application=name_part(application), force=force)
    brokers = list[str]()
    for process in await _masters(operator):
        try:
            await operator.ask(process.address, RequestCode.FORGET_SINK, header)
        except BrokerError as error:
            if error.response_code not in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                raise
        else:
            brokers.append(process.broker)
    if not brokers:
        raise NotFound("no master has this application: see `tally topic sinks`", topic=topic, application=application)
    return brokers


async def _masters(operator: Operator) -> list[BrokerProcess]:
    return [process for process in await list_processes(operator) if process.is_master]


async def _rows(operator: Operator, address: str) -> list[SinkBatch]:
    rows = dict[tuple[str, str], SinkBatch]()
    start: int | None = 0
    while start is not None:
        try:
            response = await operator.ask(
                address, RequestCode.GET_TABLE_PAGE, TablePageHeader(table=SINKS, start=start)
            )
        except BrokerError as error:
            if error.response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return []
            raise
        try:
            rows |= {row.key: row for row in _decode(response.body)}
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"the table of sinks is none: {error}", address=address) from error
        before, start = start, TablePageResponse.of(response).next
        if start is not None and start <= before:
            raise RemoteProtocolError("the pages of the table of sinks go back", address=address)
    return list(rows.values())


async def _expire_ms(operator: Operator, address: str) -> int | None:
    response = await operator.ask(address, RequestCode.GET_BROKER_CONFIG)
    days = parse_properties(bytes(response.body).decode(errors="replace")).get("sinkExpireDays", "")
    return int(days) * DAY_MS if days.isdecimal() else None
