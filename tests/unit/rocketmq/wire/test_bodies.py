"""JSON bodies and configuration tables."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import (
    ConsumeStats,
    GroupTable,
    HaStatus,
    OffsetTable,
    QueueLag,
    QueueStats,
    SlaveLink,
    TimerCheckpoint,
    TopicStats,
    TopicTable,
    TopicTableResponse,
    read_stats,
)
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, MessageQueue, TopicConfig


def test_a_topic_named_by_digits_keeps_its_quotes() -> None:
    table = TopicTable(DataVersion(), {"123": TopicConfig("123")})
    text = dialect.write(table)
    assert b'"123":{' in text
    assert dialect.read_as(text, TopicTable) == table


def test_a_table_of_an_older_broker_lacks_what_came_later() -> None:
    text = '{"dataVersion":{"counter":1,"timestamp":2},"offsetTable":{"T@G":{0:5}}}'
    assert dialect.read_as(text, OffsetTable) == OffsetTable(DataVersion(0, 2, 1), {"T@G": {0: 5}})
    response = dialect.read_as('{"dataVersion":{},"topicConfigTable":{}}', TopicTableResponse)
    assert response.mapping_version == DataVersion()


def test_what_ours_does_not_use_of_a_group_is_kept() -> None:
    text = (
        '{"groupName":"g","groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5}},'
        '"subscriptionDataSet":[{"expression":"*","topic":"t"}]}'
    )
    group = dialect.read_as(text, GroupConfig)
    again = dialect.read_as(dialect.write(group), GroupConfig)
    assert again == group
    assert again.retry_policy["exponentialRetryPolicy"] == {"initial": 5}
    table = GroupTable(DataVersion(), {"g": group}, {"g": {"t": 1}})
    assert dialect.read_as(b"".join(dialect.write_lines(table)), GroupTable) == table


@pytest.mark.parametrize(
    "stats",
    [
        TopicStats({MessageQueue("t", "b", 0): QueueStats(0, 5, 99), MessageQueue("t", "b", 1): QueueStats(1, 2, 3)}),
        ConsumeStats({MessageQueue("t", "b", 0): QueueLag(10, 5)}, 0.5),
        TopicStats({}),
    ],
)
def test_tables_with_objects_for_keys(stats: Any) -> None:
    assert read_stats(dialect.write(stats), type(stats)) == stats


@pytest.mark.parametrize(
    "text",
    [b"{}", b"[]", b"1", b'{"offsetTable":[]}', b'{"offsetTable":{1:2}}', b'{"offsetTable":{{"topic":"t"}:{}}}', b"{"],
)
def test_other_texts_are_no_statistics(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_stats(text, TopicStats)


def test_a_timer_checkpoint_is_seven_numbers() -> None:
    checkpoint = TimerCheckpoint(1, 2, 3, 4, DataVersion(5, 6, 7))
    data = checkpoint.encode()
    assert data == b"".join(number.to_bytes(8, "big") for number in range(1, 8))
    assert TimerCheckpoint.decode(data) == checkpoint
    with pytest.raises(RemoteProtocolError):
        TimerCheckpoint.decode(data[:-1])


def test_the_ha_status_of_a_master_with_a_slave() -> None:
    status = HaStatus(True, 100, 1, [SlaveLink("127.0.0.1:5", 90, 10, True)])
    text = dialect.write(status)
    assert b'"haConnectionInfo":[{"addr":"127.0.0.1:5","diff":10,"inSync":true,"slaveAckOffset":90,' in text
    assert dialect.read_as(text, HaStatus) == status
