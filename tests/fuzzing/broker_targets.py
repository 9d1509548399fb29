"""What strangers send to brokers and name servers, and brokers to clients and each other."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzzing.targets import Target
from tallystick.codec.pulled import scan_pulled
from tallystick.codec.records import scan_records
from tallystick.codec.steps import finished
from tallystick.codec.uniform_records import scan_uniform_records
from tallystick.errors import CorruptRecord, RemoteProtocolError, UsageError
from tallystick.pipeline.topic.uniform import UniformRun, scan_uniform
from tallystick.rocketmq.wire import bodies, dialect, headers, message_ids, record
from tallystick.rocketmq.wire.ha import decode_master_hello, decode_slave_hello
from tallystick.rocketmq.wire.registration import decode_registration
from tallystick.rocketmq.wire.remoting import FrameReader, encode
from tallystick.rocketmq.wire.values import Heartbeat, TopicConfig

GOLDEN = Path(__file__).resolve().parent.parent / "wire" / "golden"
HEADERS = (
    headers.SendHeader, headers.SendBackHeader, headers.PullHeader, headers.QueryOffsetHeader,
    headers.UpdateOffsetHeader, headers.QueryMessageHeader, headers.UnregisterClientHeader, headers.CreateTopicHeader,
)  # fmt: skip
BODIES: tuple[type, ...] = (
    Heartbeat, TopicConfig, bodies.TopicTable, bodies.GroupTable, bodies.OffsetTable, bodies.DelayTable,
    bodies.LockRequest, bodies.ConsumerIds, bodies.ResetOffsets, bodies.KvTable,
)  # fmt: skip


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member)


def _recorded(name: str, most_bytes: int = 4096) -> list[bytes]:
    """All that is hexadecimal in a file of recorded bytes."""
    found = []
    for text in _texts(json.loads((GOLDEN / name).read_text())):
        try:
            data = bytes.fromhex(text)
        except ValueError:
            continue
        if 8 <= len(data) <= most_bytes:
            found.append(data)
    return found


FRAMES = _recorded("rocketmq_remoting.json")
RECORDS = _recorded("rocketmq_store.json")


def frames(data: bytes) -> None:
    """Commands, their headers, and the same commands encoded again."""
    reader = FrameReader()
    try:
        commands = reader.take(data)
    except RemoteProtocolError:
        return
    for command in commands:
        for kind in HEADERS:
            try:
                kind.of(command)
            except RemoteProtocolError:
                continue
        try:
            fields = command.fields
        except RemoteProtocolError:
            continue
        [again] = FrameReader().take(encode(command))
        assert (again.code, again.opaque, again.fields, again.body) == (
            command.code, command.opaque, fields, command.body,
        )  # fmt: skip


def texts(data: bytes) -> None:
    """JSON in the original's dialect, as each body that is one."""
    for kind in BODIES:
        try:
            dialect.read_short(data, kind)
        except RemoteProtocolError:
            continue
    try:
        value = dialect.read(data)
    except RemoteProtocolError:
        return
    assert dialect.read(dialect.write(value)) == value


def registrations(data: bytes) -> None:
    for compressed in (False, True):
        try:
            finished(decode_registration(data, compressed=compressed, version=450))
        except RemoteProtocolError:
            continue


def messages(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        record.decode_batch(data, 1000)
    with contextlib.suppress(RemoteProtocolError):
        record.decode_messages(data)
    record.decode_properties(data)


def bodies_of(run: UniformRun) -> list[bytes]:
    return [body.tobytes() for body in run.bodies]


def records(data: bytes) -> None:
    """Columns of a log, of which one way is the other's reference."""
    run = scan_records(data, 0, verify=True)
    even = scan_uniform_records(data, 0)
    if even is not None:
        assert len(even) <= len(scan_records(data, 0))
    assert len(run) >= 0
    with contextlib.suppress(CorruptRecord, RemoteProtocolError):
        uniform = scan_uniform(data)
        assert uniform is None or bodies_of(uniform) == [bytes(body) for body in scan_pulled(data).bodies]


def hellos(data: bytes) -> None:
    for decode in (decode_master_hello, decode_slave_hello):
        try:
            decode(data)
        except RemoteProtocolError:
            continue


def ids(data: bytes) -> None:
    with contextlib.suppress(UsageError):
        message_ids.decode_message_id(data.decode("latin-1"))


TARGETS = (
    Target("frames", frames, FRAMES),
    Target("texts", texts, [b'{"a":1,2:[true,null,"x\\u0041"]}', b"{'a':1e5,}", b"{{1:'a'}:{{}:1}}", *FRAMES[:20]]),
    Target("registrations", registrations, [b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}', *FRAMES[:20]]),
    Target("log-messages", messages, RECORDS),
    Target("records", records, RECORDS),
    Target("hellos", hellos, [b'{"slave_id":"a","first":0,"end":8,"start":null}']),
    Target("ids", ids, [b"7F00000100002A9F0000000000000000"]),
)
