"""Messages as a sink sends them to a broker, and where those of a log end."""

from __future__ import annotations

from support.brokers import TOPIC
from support.message_stores import HOST, Shelf
from tallystick.codec.records import scan_records
from tallystick.rocketmq.store.sink_table import SinkTable
from tallystick.rocketmq.store.values import PutRequest, PutResult
from tallystick.rocketmq.wire.headers import SendHeader
from tallystick.rocketmq.wire.record import encode_batch, encode_properties
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.sink_identity import SINK, SinkIdentity, identity_of
from tallystick.rocketmq.wire.values import PutStatus, RequestCode

Message = tuple[int, bytes, bytes]


def identities(
    first: int, count: int, *, batch: int = 0, partition: int = 0, partitions: int = 2, crc: int = 0, query: str = "q"
) -> list[SinkIdentity]:
    return [
        SinkIdentity("app", query, batch, partitions, partition, number, crc + number, "b0")
        for number in range(first, first + count)
    ]


def sink_messages(some: list[SinkIdentity], body: bytes = b"x") -> list[Message]:
    return [
        (0, body, encode_properties({SINK: each.text, "UNIQ_KEY": f"{each.batch}-{each.partition}-{each.sequence}"}))
        for each in some
    ]


def sink_command(some: list[SinkIdentity], *, topic: str = TOPIC, queue_id: int = 0, body: bytes = b"x") -> Command:
    header = SendHeader(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="WAIT\x01true\x02",
        batch=True,
    )
    return request(RequestCode.SEND_SINK_BATCH, header.to_letters(), encode_batch(sink_messages(some, body)))


def put_sink(shelf: Shelf, some: list[SinkIdentity], *, topic: str = "Topic", size: int = 20) -> PutResult:
    """As a master does that has checked it."""
    put_request = PutRequest(topic, 0, sink_messages(some, bytes(size)), 1_600_000_000_000, HOST)
    (put,) = shelf.store.put([put_request], some[-1])
    return put


Newest = dict[tuple[str, str], tuple[str, int, dict[int, int]]]


def newest_of(table: SinkTable) -> Newest:
    """Query, batch, and the last sequence of each partition."""
    return {
        row.key: (row.query, row.batch, {last.partition: last.sequence for last in row.partitions})
        for row in table.rows()
    }


def newest_in(shelf: Shelf) -> Newest:
    """The same, as all records of the log say it, one by one."""
    newest: Newest = {}
    store = shelf.store
    offset = store.first
    while offset < store.end:
        data = bytes(store.slice(offset, 1 << 20))
        run = scan_records(data, offset)
        for topic, properties in zip(run.topics, run.properties, strict=True):
            if (identity := identity_of(properties)) is None or topic.startswith(b"%"):
                continue
            key = topic.decode(), identity.application
            query, batch, sequences = newest.get(key, ("", -1, {}))
            if (query, batch) != (identity.query, identity.batch):
                sequences = {}
            newest[key] = identity.query, identity.batch, {**sequences, identity.partition: identity.sequence}
        offset += len(data)
    return newest


def is_stored(put: PutResult) -> bool:
    return put.status is PutStatus.PUT_OK
