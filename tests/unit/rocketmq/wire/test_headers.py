"""Typed headers: from extFields and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.frames import decode
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import headers
from tallystick.rocketmq.wire.headers import (
    Header,
    PullHeader,
    PullResponse,
    SendHeader,
    SendResponse,
    TopicHeader,
    read_send,
)
from tallystick.rocketmq.wire.remoting import encode, request
from tallystick.rocketmq.wire.values import Int32, Int64, RequestCode, Serialization

KINDS: list[type[Header]] = sorted(
    (
        each
        for each in vars(headers).values()
        if isinstance(each, type) and issubclass(each, Header) and each is not Header
    ),
    key=lambda kind: kind.__name__,
)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SEND = SendHeader(
    producer_group="p",
    topic="t",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=1,
    sys_flag=0,
    born_timestamp=1_700_000_000_000,
    flag=-1,
    properties="a\x01b\x02",
    reconsume_times=0,
    unit_mode=False,
    batch=True,
)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(KINDS), st.sampled_from(Serialization))
def test_what_is_written_is_read_again(data: st.DataObject, kind: type[Header], serialization: Serialization) -> None:
    texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        str: texts, str | None: st.none() | texts, bool: st.booleans(), bool | None: st.none() | st.booleans(),
        Int32: INT32, Int32 | None: st.none() | INT32, Int64: INT64, Int64 | None: st.none() | INT64,
    }  # fmt: skip
    header = kind(**{each.name: data.draw(kinds[each.type]) for each in msgspec.structs.fields(kind)})
    command = decode(encode(request(1, header.to_fields(), serialization=serialization)))
    assert kind.of(command) == header


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_first_missing_mandatory_field_is_named(kind: type[Header]) -> None:
    mandatory = [each.encode_name for each in msgspec.structs.fields(kind) if each.required]
    for command in (request(1), request(1, {}), decode(encode(request(1, {})))):
        if not mandatory:
            assert kind.of(command) == kind()
            continue
        with pytest.raises(RemoteProtocolError) as raised:
            kind.of(command)
        assert raised.value.message == f"the custom field <{mandatory[0]}> is null"


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_a_send_is_read_under_its_letters(code: RequestCode) -> None:
    letters = SEND.to_letters()
    assert letters["a"] == "p" and letters["h"] == "-1" and letters["k"] == "false" and letters["m"] == "true"
    assert "l" not in letters and "n" not in letters
    found = read_send(decode(encode(request(code, letters))))
    assert isinstance(found, SendHeader)
    assert found.to_fields() == SEND.to_letters()
    assert all(getattr(found, name) == getattr(SEND, name) for name in SendHeader.__struct_fields__)


def test_a_send_is_read_under_its_long_names() -> None:
    assert read_send(decode(encode(request(RequestCode.SEND_MESSAGE, SEND.to_fields())))) == SEND


def test_the_answer_to_a_send_is_written_as_the_general_way_would() -> None:
    for response in (
        SendResponse(queue_id=1, transaction_id="u", msg_id="m", queue_offset=7),
        SendResponse(queue_id=1, msg_id="m", queue_offset=7, trace_on="false", region="north"),
        PullResponse(suggest_which_broker_id=0, next_begin_offset=1 << 40, max_offset=9, min_offset=-1),
        PullResponse(
            suggest_which_broker_id=1,
            group_sys_flag=2,
            next_begin_offset=3,
            max_offset=4,
            min_offset=5,
            topic_sys_flag=6,
            mark="2.0123abcd",
        ),
    ):
        assert list(response.to_fields().items()) == list(Header.to_fields(response).items())


@pytest.mark.parametrize(
    "changed",
    [{"queueId": "x"}, {"queueId": ""}, {"queueId": "1.5"}, {"queueId": str(2**31)}, {"queueOffset": str(2**63)}],
)
def test_a_value_of_another_type_is_refused(changed: dict[str, str]) -> None:
    pull = PullHeader(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
    )
    for serialization in Serialization:
        command = decode(encode(request(11, pull.to_fields() | changed, serialization=serialization)))
        with pytest.raises(RemoteProtocolError):
            PullHeader.of(command)


def test_fields_that_are_no_strings_are_read_too() -> None:
    header: Any = b'{"code":30,"extFields":{"topic":7,"queueId":3,"other":[1]}}'
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    assert headers.QueueHeader.of(decode(frame)) == headers.QueueHeader(topic="7", queue_id=3)


def test_unknown_fields_are_passed_over() -> None:
    assert TopicHeader.of(request(351, {"lo": "true", "topic": "T"})) == TopicHeader("T")
