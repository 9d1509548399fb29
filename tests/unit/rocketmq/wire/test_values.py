"""Codes, flags and values of the primary-replica log."""

from __future__ import annotations

import msgspec
import pytest

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import (
    DataVersion,
    GroupConfig,
    Heartbeat,
    Language,
    Perm,
    PutStatus,
    ResponseCode,
    Subscription,
    TopicConfig,
)


def test_a_version_steps_by_one_and_takes_the_time() -> None:
    assert DataVersion(2, 5, 7).next(99) == DataVersion(2, 99, 8)


@pytest.mark.rule("H12")
def test_h12_versions_are_equal_only_in_all_three_numbers() -> None:
    same = DataVersion(1, 2, 3)
    assert same == DataVersion(1, 2, 3)
    assert all(same != other for other in (DataVersion(0, 2, 3), DataVersion(1, 0, 3), DataVersion(1, 2, 4)))


CPP_HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":1,'
    b'"subscriptionDataSet":[{"codeSet":["65"],"subString":"A","subVersion":"7","tagsSet":["A"],"topic":"T"}]}],'
    b'"producerDataSet":[{"groupName":"p"}]}'
)


def test_enums_come_as_names_from_java_and_as_numbers_from_cpp() -> None:
    """A heartbeat with numbers was refused, so C++ clients could not consume."""
    group = dialect.read_as(CPP_HEARTBEAT, Heartbeat).consumers[0]
    assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert group.consume_from == "CONSUME_FROM_FIRST_OFFSET"
    assert group.subscriptions == (Subscription("T", "A", ("A",), (65,), 7),)
    loose = CPP_HEARTBEAT.replace(b'"consumeType"', b"'consumeType'")
    assert dialect.read_as(loose, Heartbeat).consumers == (group,)
    named = CPP_HEARTBEAT.replace(b":1,", b':"BROADCASTING",').replace(b":4", b':"CONSUME_FROM_TIMESTAMP"')
    assert dialect.read_as(named, Heartbeat).consumers[0].message_model == "BROADCASTING"
    for topic in (b'{"topicName":"T","topicFilterType":1}', b'{"topicName":"T","topicFilterType":"MULTI_TAG"}'):
        assert dialect.read_as(topic, TopicConfig).filter_type == "MULTI_TAG"
    assert dialect.write(dialect.read_as(topic, TopicConfig)).count(b'"topicFilterType":"MULTI_TAG"') == 1


@pytest.mark.parametrize("number", [b"7", b"-1", b"true", b"[]"])
def test_a_number_that_no_enum_has_is_refused(number: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        dialect.read_as(CPP_HEARTBEAT.replace(b":4", b":" + number), Heartbeat)


@pytest.mark.rule("H9")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.PUT_OK, ResponseCode.SUCCESS),
        (PutStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (PutStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
        (PutStatus.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (PutStatus.CREATE_MAPPED_FILE_FAILED, ResponseCode.SYSTEM_ERROR),
        (PutStatus.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, ResponseCode.MESSAGE_ILLEGAL),
        (PutStatus.OS_PAGE_CACHE_BUSY, ResponseCode.SYSTEM_BUSY),
        (PutStatus.UNKNOWN_ERROR, ResponseCode.SYSTEM_ERROR),
        (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_h9_what_a_producer_is_told(status: PutStatus, code: ResponseCode) -> None:
    assert status.response_code == code


def test_languages_by_name_and_number() -> None:
    assert [Language.of_number(each.number) for each in Language] == list(Language)
    assert Language.PYTHON.number == 3
    assert Language.of_number(200) is Language.OTHER
    assert msgspec.json.decode(b'"KLINGON"', type=Language) is Language.OTHER


def test_groups_have_policies_of_their_own() -> None:
    first, second = GroupConfig("a"), GroupConfig("b")
    first.retry_policy["type"] = "EXPONENTIAL"
    assert second.retry_policy == {"type": "CUSTOMIZED"}


def test_a_topic_is_readable_and_writable_by_default() -> None:
    assert Perm.READ | Perm.WRITE == 6
