"""What an original client, broker and name server said to each other, byte for byte, read and written by ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support import frames
from tallystick.codec.steps import finished
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import bodies, dialect, headers, name_server_headers, operator_headers, remoting
from tallystick.rocketmq.wire.bodies import ConsumeStats, TopicStats
from tallystick.rocketmq.wire.headers import Header
from tallystick.rocketmq.wire.registration import Registration, body_crc, decode_registration, encode_registration
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import (
    FIRST_STANDARD_JSON_VERSION,
    DataVersion,
    GroupConfig,
    Heartbeat,
    Language,
    RequestCode,
    Serialization,
    TopicConfig,
    TopicRoute,
)

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "rocketmq_remoting.json").read_text())
EXCHANGES = {each["name"]: (each["request"], each["response"]) for each in GOLDEN["exchanges"]}
REQUESTS = {each["name"]: each["frame"] for each in GOLDEN["requests"]}
FRAMES = REQUESTS | {f"{name} {which}": pair[i] for name, pair in EXCHANGES.items() for i, which in enumerate("?!")}

# By request code: its header, the header of its answer, the body of the request, that of the answer.
Kind = type[Any] | None
KINDS: dict[int, tuple[Kind, Kind, Kind, Kind]] = {
    RequestCode.SEND_MESSAGE: (headers.SendHeader, headers.SendResponse, None, None),
    RequestCode.SEND_MESSAGE_V2: (headers.SendHeader, headers.SendResponse, None, None),
    RequestCode.SEND_BATCH_MESSAGE: (headers.SendHeader, headers.SendResponse, None, None),
    RequestCode.PULL_MESSAGE: (headers.PullHeader, headers.PullResponse, None, None),
    RequestCode.LITE_PULL_MESSAGE: (headers.PullHeader, headers.PullResponse, None, None),
    RequestCode.QUERY_MESSAGE: (headers.QueryMessageHeader, headers.QueryMessageResponse, None, None),
    RequestCode.VIEW_MESSAGE_BY_ID: (headers.ViewMessageHeader, None, None, None),
    RequestCode.QUERY_CONSUMER_OFFSET: (headers.QueryOffsetHeader, headers.OffsetResponse, None, None),
    RequestCode.UPDATE_CONSUMER_OFFSET: (headers.UpdateOffsetHeader, None, None, None),
    RequestCode.GET_MAX_OFFSET: (headers.QueueHeader, headers.OffsetResponse, None, None),
    RequestCode.GET_MIN_OFFSET: (headers.QueueHeader, headers.OffsetResponse, None, None),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (headers.SearchOffsetHeader, headers.OffsetResponse, None, None),
    RequestCode.HEART_BEAT: (None, headers.HeartbeatResponse, Heartbeat, None),
    RequestCode.UNREGISTER_CLIENT: (headers.UnregisterClientHeader, None, None, None),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (headers.ConsumerGroupHeader, None, None, bodies.ConsumerIds),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: (headers.ConsumerGroupHeader, None, None, None),
    RequestCode.CONSUMER_SEND_MSG_BACK: (headers.SendBackHeader, None, None, None),
    RequestCode.LOCK_BATCH_MQ: (None, None, bodies.LockRequest, bodies.LockResponse),
    RequestCode.UNLOCK_BATCH_MQ: (None, None, bodies.LockRequest, None),
    RequestCode.GET_ALL_TOPIC_CONFIG: (
        headers.TopicPageHeader,
        headers.TopicPageResponse,
        None,
        bodies.TopicTableResponse,
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        headers.GroupPageHeader,
        headers.GroupPageResponse,
        None,
        bodies.GroupTable,
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: (None, None, None, bodies.OffsetTable),
    RequestCode.GET_ALL_DELAY_OFFSET: (None, None, None, bodies.DelayTable),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: (None, None, None, bodies.RequestModeTable),
    RequestCode.GET_TIMER_METRICS: (None, None, None, bodies.TimerMetrics),
    RequestCode.GET_BROKER_HA_STATUS: (None, None, None, bodies.HaStatus),
    RequestCode.GET_TOPIC_STATS_INFO: (headers.TopicHeader, None, None, TopicStats),
    RequestCode.GET_CONSUME_STATS: (operator_headers.ConsumeStatsHeader, None, None, ConsumeStats),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (headers.CreateTopicHeader, None, None, None),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (None, None, GroupConfig, None),
    RequestCode.GET_TOPIC_CONFIG: (headers.TopicHeader, None, None, TopicConfig),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (name_server_headers.RouteHeader, None, None, TopicRoute),
    RequestCode.GET_BROKER_CLUSTER_INFO: (None, None, None, bodies.ClusterInfo),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (None, None, None, bodies.TopicNames),
    RequestCode.GET_BROKER_MEMBER_GROUP: (name_server_headers.MemberGroupHeader, None, None, bodies.MemberGroup),
    RequestCode.PUT_KV_CONFIG: (name_server_headers.KvHeader, None, None, None),
    RequestCode.GET_KV_CONFIG: (name_server_headers.KvHeader, name_server_headers.ValueResponse, None, None),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (name_server_headers.NamespaceHeader, None, None, bodies.KvTable),
    RequestCode.QUERY_DATA_VERSION: (
        name_server_headers.BrokerHeader,
        name_server_headers.DataVersionResponse,
        DataVersion,
        DataVersion,
    ),
    RequestCode.REGISTER_BROKER: (
        name_server_headers.RegisterBrokerHeader,
        name_server_headers.RegisterBrokerResponse,
        Registration,
        None,
    ),
    RequestCode.UNREGISTER_BROKER: (name_server_headers.BrokerHeader, None, None, None),
    RequestCode.BROKER_HEARTBEAT: (name_server_headers.BrokerHeartbeatHeader, None, None, None),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (
        name_server_headers.BrokerNameHeader,
        name_server_headers.WipeWriteResponse,
        None,
        None,
    ),
}
# What ours need not know of a request: lite-pull's mark, a static topic's, one that 5.5.0 ignores for plain topics.
PASSED_OVER = {"ReqT", "lo", "committed"}
MISSING = {"send_missing_field"}  # mandatory fields are left out on purpose


def decode(text: str) -> Command:
    return frames.decode(bytes.fromhex(text))


def read_header(command: Command, kind: type[Header]) -> Header:
    return headers.read_send(command) if kind is headers.SendHeader else kind.of(command)


def rebuilt(command: Command, kind: Kind, *, quoted: bool = False) -> bytes:
    """A body read into its type and written again."""
    if kind is None:
        return bytes(command.body)
    if kind in (TopicStats, ConsumeStats):
        return dialect.write(bodies.read_stats(bytes(command.body), kind))
    return dialect.write(dialect.read_as(bytes(command.body), kind), quoted=quoted)


@pytest.mark.parametrize("name", FRAMES)
def test_every_recorded_frame_is_read_and_written_again(name: str) -> None:
    frame = bytes.fromhex(FRAMES[name])
    command = frames.decode(frame)
    assert remoting.encode(command) == frame
    fields = dict(command.fields)  # read for good now, not passed on as they are
    assert remoting.encode(command) == frame
    assert frames.decode(remoting.encode(command)).fields == fields


@pytest.mark.parametrize("name", [*REQUESTS, *EXCHANGES])
def test_every_recorded_request_has_its_typed_header(name: str) -> None:
    request = decode(REQUESTS.get(name) or EXCHANGES[name][0])
    kind = KINDS.get(request.code, (None,))[0]
    if kind is None or not request.fields:
        return
    if name in MISSING:
        with pytest.raises(RemoteProtocolError, match="the custom field <b> is null"):
            read_header(request, kind)
        return
    header = read_header(request, kind)
    v2 = request.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    ours = header.to_letters() if isinstance(header, headers.SendHeader) and v2 else header.to_fields()
    for field, value in request.fields.items():
        assert field in PASSED_OVER or ours[field] == value, field
    binary = frames.decode(remoting.encode(remoting.request(request.code, ours, serialization=Serialization.BINARY)))
    filled = {field: value for field, value in ours.items() if value}  # a binary header has no empty values
    assert read_header(binary, kind) == read_header(remoting.request(request.code, filled), kind)


@pytest.mark.parametrize("name", EXCHANGES)
def test_every_recorded_answer_is_made_from_its_values(name: str) -> None:
    """The typed header, the typed body and the remark give the recorded bytes; only the language is another."""
    request, recorded = (decode(text) for text in EXCHANGES[name])
    _, header, _, body = KINDS.get(request.code, (None, None, None, None))
    fields = recorded.fields if recorded.ext is not None else None
    if header is not None and recorded.code == 0 and fields:
        fields = header.of(recorded).to_fields()
    standard = request.version >= FIRST_STANDARD_JSON_VERSION or "acceptStandardJsonOnly" in request.fields
    quoted = request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and standard
    content = rebuilt(recorded, body, quoted=quoted) if recorded.body else b""

    answer = request.response(recorded.code, recorded.remark, fields, content)
    answer.language = Language.JAVA
    assert remoting.encode(answer) == bytes.fromhex(EXCHANGES[name][1])


@pytest.mark.parametrize(
    "name", [name for name in EXCHANGES if KINDS.get(decode(EXCHANGES[name][0]).code, [None] * 4)[2]]
)
def test_the_recorded_bodies_of_requests_are_read(name: str) -> None:
    request = decode(EXCHANGES[name][0])
    kind = KINDS[request.code][2]
    assert kind is not None
    value = dialect.read_as(bytes(request.body), kind)
    assert dialect.read_as(dialect.write(value), kind) == value
    if request.language is Language.JAVA:
        assert dialect.write(value) == request.body


def test_a_recorded_registration_survives_compression_and_its_check_sum_is_right() -> None:
    request = decode(EXCHANGES["broker-ns_103"][0])
    header = name_server_headers.RegisterBrokerHeader.of(request)
    assert body_crc(bytes(request.body)) == header.body_crc32
    registration = finished(
        decode_registration(bytes(request.body), compressed=header.compressed, version=request.version)
    )
    packed = encode_registration(registration, compressed=True)
    unpacked = finished(decode_registration(packed, compressed=True, version=request.version))
    assert unpacked.table.topics == registration.table.topics
    assert unpacked.table.version == registration.table.version


def test_the_recorded_timer_checkpoint() -> None:
    body = bytes(decode(EXCHANGES["timer_checkpoint"][1]).body)
    assert bodies.TimerCheckpoint.decode(body).encode() == body


TABLES: dict[str, type[msgspec.Struct]] = {
    "topics.json": bodies.TopicTable,
    "subscriptionGroup.json": bodies.GroupTable,
    "consumerOffset.json": bodies.OffsetTable,
    "delayOffset.json": bodies.DelayTable,
}


@pytest.mark.parametrize("name", GOLDEN["files"])
def test_every_recorded_configuration_file_is_read_and_written_again(name: str) -> None:
    text, kind = GOLDEN["files"][name], TABLES[name.split(" ")[0]]
    value: Any = dialect.read_as(text, kind)
    if text.startswith("{\n"):
        assert dialect.read(b"".join(dialect.write_lines(value))) == dialect.read(text)
    else:  # a slave keeps its master's delay offsets as they came, whatever their form
        assert dialect.write(value, quoted=True).decode() == text
