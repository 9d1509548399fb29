"""JSON bodies of requests and responses, and the texts of configuration files: one struct each.

``dialect.read_as(body, TopicTable)`` reads one; ``dialect.write(value)`` and ``write_lines(value)`` write one. What a
table holds besides comes back out as it was; unknown members are passed over. Sources: ``remoting.protocol.body``,
``TopicConfigManager``, ``SubscriptionGroupManager``, ``ConsumerOffsetManager``, ``DelayOffsetSerializeWrapper``.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
from msgspec import field

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import (
    BrokerRoute,
    DataVersion,
    GroupConfig,
    Int32,
    Int64,
    MessageQueue,
    Subscription,
    TopicConfig,
)

# Tables of a broker: files, and what a slave fetches (H12)


class TopicTable(msgspec.Struct, frozen=True):
    """topics.json."""

    version: DataVersion = field(name="dataVersion")
    topics: dict[str, TopicConfig] = field(name="topicConfigTable")


class TopicTableResponse(TopicTable, frozen=True):
    """To GET_ALL_TOPIC_CONFIG, and inside a registration. The mappings belong to static topics, which ours lacks."""

    mapping_version: DataVersion = field(default=DataVersion(), name="mappingDataVersion")
    mapping_details: dict[str, Any] = field(default_factory=dict, name="topicQueueMappingDetailMap")
    mapping_infos: dict[str, Any] = field(default_factory=dict, name="topicQueueMappingInfoMap")


class TopicList(msgspec.Struct, frozen=True):
    """Of UPDATE_AND_CREATE_TOPIC_LIST. The attributes of each topic are changes: ``+name`` or ``-name`` to a value."""

    topics: list[TopicConfig] = field(name="topicConfigList")


class GroupTable(msgspec.Struct, frozen=True):
    """subscriptionGroup.json, and the response to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    version: DataVersion = field(name="dataVersion")
    groups: dict[str, GroupConfig] = field(name="subscriptionGroupTable")
    forbidden: dict[str, dict[str, Int32]] = field(default_factory=dict, name="forbiddenTable")


class OffsetTable(msgspec.Struct, frozen=True):
    """consumerOffset.json, and the response to GET_ALL_CONSUMER_OFFSET: offsets by ``topic@group``, then by queue."""

    version: DataVersion = field(name="dataVersion")
    offsets: dict[str, dict[Int32, Int64]] = field(name="offsetTable")
    pull_offsets: dict[str, dict[Int32, Int64]] = field(default_factory=dict, name="pullOffsetTable")
    group_topics: dict[str, Collection[str]] = field(default_factory=dict, name="groupTopicMap")


class TopicTablePart(msgspec.Struct, frozen=True):
    """Some of a ``TopicTable``: what is None is in another part."""

    version: DataVersion | None = field(default=None, name="dataVersion")
    topics: dict[str, TopicConfig] | None = field(default=None, name="topicConfigTable")


class GroupTablePart(msgspec.Struct, frozen=True):
    """As ``TopicTablePart``, of a ``GroupTable``."""

    version: DataVersion | None = field(default=None, name="dataVersion")
    groups: dict[str, GroupConfig] | None = field(default=None, name="subscriptionGroupTable")
    forbidden: dict[str, dict[str, Int32]] = field(default_factory=dict, name="forbiddenTable")


class OffsetTablePart(msgspec.Struct, frozen=True):
    """As ``TopicTablePart``, of an ``OffsetTable``."""

    version: DataVersion | None = field(default=None, name="dataVersion")
    offsets: dict[str, dict[Int32, Int64]] | None = field(default=None, name="offsetTable")
    pull_offsets: dict[str, dict[Int32, Int64]] | None = field(default=None, name="pullOffsetTable")


class DelayTable(msgspec.Struct, frozen=True):
    """delayOffset.json, and the response to GET_ALL_DELAY_OFFSET: queue offset by delay level (1 to 18)."""

    version: DataVersion = field(name="dataVersion")
    offsets: dict[Int32, Int64] = field(name="offsetTable")


class RequestModeTable(msgspec.Struct, frozen=True):
    """The response to GET_ALL_MESSAGE_REQUEST_MODE."""

    modes: dict[str, Any] = field(default_factory=dict, name="messageRequestModeMap")


class TimerMetrics(msgspec.Struct, frozen=True):
    """The response to GET_TIMER_METRICS."""

    version: DataVersion = field(name="dataVersion")
    counts: dict[str, Any] = field(default_factory=dict, name="timingCount")


_TIMER_CHECKPOINT = struct.Struct(">7q")


class TimerCheckpoint(msgspec.Struct, frozen=True):
    """The response to GET_TIMER_CHECK_POINT, which is no JSON: seven numbers."""

    last_read_time_ms: Int64 = 0
    last_log_flush: Int64 = 0
    last_queue_offset: Int64 = 0
    master_queue_offset: Int64 = 0
    version: DataVersion = DataVersion()

    def encode(self) -> bytes:
        *numbers, version = msgspec.structs.astuple(self)
        return _TIMER_CHECKPOINT.pack(*numbers, *msgspec.structs.astuple(version))

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Raises RemoteProtocolError."""
        if len(data) < _TIMER_CHECKPOINT.size:
            raise RemoteProtocolError("a timer checkpoint is too short", bytes=len(data))
        read_time, log_flush, queue_offset, master_offset, *version = _TIMER_CHECKPOINT.unpack_from(data)
        return cls(read_time, log_flush, queue_offset, master_offset, DataVersion(*version))


# Clients


class ConsumerIds(msgspec.Struct, frozen=True):
    """The response to GET_CONSUMER_LIST_BY_GROUP."""

    ids: list[str] = field(name="consumerIdList")


class Connection(msgspec.Struct, frozen=True, rename="camel"):
    """One client of a group. ``language`` is the name that JSON headers use."""

    client_id: str
    client_addr: str
    language: str
    version: Int32


class ConsumerConnections(msgspec.Struct, frozen=True, rename="camel"):
    """The response to GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[Connection]
    consume_from_where: str
    consume_type: str
    message_model: str
    subscription_table: dict[str, Subscription]


class LockRequest(msgspec.Struct, frozen=True):
    """Of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    client_id: str = field(name="clientId")
    group: str = field(name="consumerGroup")
    queues: list[MessageQueue] = field(name="mqSet")
    only_this_broker: bool = field(default=False, name="onlyThisBroker")


class LockResponse(msgspec.Struct, frozen=True):
    """To LOCK_BATCH_MQ."""

    queues: list[MessageQueue] = field(name="lockOKMQSet")


class QueueStats(msgspec.Struct, frozen=True, rename="camel"):
    min_offset: Int64
    max_offset: Int64
    last_update_timestamp: Int64


class TopicStats(msgspec.Struct, frozen=True):
    """The response to GET_TOPIC_STATS_INFO. Its keys are objects."""

    queues: dict[MessageQueue, QueueStats] = field(name="offsetTable")
    put_tps: float = field(default=0.0, name="topicPutTps")


class QueueLag(msgspec.Struct, frozen=True, rename="camel"):
    broker_offset: Int64
    consumer_offset: Int64
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(msgspec.Struct, frozen=True):
    """The response to GET_CONSUME_STATS. Its keys are objects."""

    queues: dict[MessageQueue, QueueLag] = field(name="offsetTable")
    consume_tps: float = field(default=0.0, name="consumeTps")


class GroupList(msgspec.Struct, frozen=True):
    """Of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    groups: list[GroupConfig] = field(name="groupConfigList")


class ResetOffsets(msgspec.Struct, frozen=True):
    """The response to INVOKE_BROKER_TO_RESET_OFFSET: where the group goes on. Its keys are objects."""

    offsets: dict[MessageQueue, Int64] = field(name="offsetTable")


class QueueUnit(msgspec.Struct, frozen=True, rename="camel"):
    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64
    eval: bool = False


class QueueUnits(msgspec.Struct, frozen=True, rename="camel"):
    """The response to QUERY_CONSUME_QUEUE."""

    min_queue_index: Int64
    max_queue_index: Int64
    queue_data: list[QueueUnit]
    subscription_data: Subscription | None = None
    filter_data: str | None = None


class ProducerInfo(msgspec.Struct, frozen=True):
    """One producer; the time is wall clock in ms."""

    client_id: str = field(name="clientId")
    address: str = field(name="remoteIP")
    language: str
    version: Int32
    last_update_ms: Int64 = field(name="lastUpdateTimestamp")


# Name servers


class ClusterInfo(msgspec.Struct, frozen=True):
    """The response to GET_BROKER_CLUSTER_INFO."""

    brokers: dict[str, BrokerRoute] = field(name="brokerAddrTable")
    clusters: dict[str, list[str]] = field(name="clusterAddrTable")


class BrokerMembers(msgspec.Struct, frozen=True):
    cluster: str
    name: str = field(name="brokerName")
    addresses: dict[Int64, str] = field(name="brokerAddrs")


class MemberGroup(msgspec.Struct, frozen=True):
    """The response to GET_BROKER_MEMBER_GROUP."""

    members: BrokerMembers = field(name="brokerMemberGroup")


class GroupNames(msgspec.Struct, frozen=True):
    """The response to QUERY_TOPIC_CONSUME_BY_WHO."""

    groups: list[str] = field(name="groupList")


class TopicNames(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to GET_ALL_TOPIC_LIST_FROM_NAMESERVER and its like."""

    topics: list[str] = field(name="topicList")
    broker_address: str | None = field(default=None, name="brokerAddr")


class KvTable(msgspec.Struct, frozen=True):
    """The response to GET_KVLIST_BY_NAMESPACE and GET_BROKER_RUNTIME_INFO."""

    table: dict[str, str]


# HA status (GET_BROKER_HA_STATUS)


class SlaveLink(msgspec.Struct, frozen=True):
    """One slave, as its master sees it. The last three are ours: the original passes over them."""

    address: str = field(name="addr")
    acked_offset: Int64 = field(name="slaveAckOffset")
    behind_bytes: Int64 = field(name="diff")
    in_sync: bool = field(name="inSync")
    bytes_per_second: Int64 = field(default=0, name="transferredByteInSecond")
    sent_offset: Int64 = field(default=0, name="transferFromWhere")  # up to here
    slave_id: str | None = field(default=None, name="slaveId")
    behind_s: float | None = field(default=None, name="behindSeconds")
    why: str | None = None


class MasterLink(msgspec.Struct, frozen=True):
    """The master, as its slave sees it; a master says zeros. The last five are ours."""

    master_address: str | None = field(default=None, name="masterAddr")
    bytes_per_second: Int64 = field(default=0, name="transferredByteInSecond")
    end: Int64 = field(default=0, name="maxOffset")
    last_read_ms: Int64 = field(default=0, name="lastReadTimestamp")
    last_write_ms: Int64 = field(default=0, name="lastWriteTimestamp")
    master_flushed: Int64 = field(default=0, name="masterFlushOffset")
    state: str | None = None
    why: str | None = None  # it does not follow; empty: it does
    metadata_age_s: float | None = field(default=None, name="metadataAgeSeconds")
    tables_why: str | None = field(default=None, name="tablesWhy")  # they are not copied; empty: they are
    ends_known: bool | None = field(default=None, name="endsKnown")  # where the master's queues end


class HaStatus(msgspec.Struct, frozen=True):
    master: bool
    end: Int64 = field(default=0, name="masterCommitLogMaxOffset")
    in_sync_slaves: Int64 = field(default=0, name="inSyncSlaveNums")
    slaves: list[SlaveLink] = field(default_factory=list, name="haConnectionInfo")
    link: MasterLink = field(default=MasterLink(), name="haClientRuntimeInfo")
    rival: str | None = field(default=None, name="tallyRival")  # ours: who else registers by its name and id


StatsT = TypeVar("StatsT", TopicStats, ConsumeStats)


def read_stats(data: bytes, kind: type[StatsT]) -> StatsT:
    """Decode a body whose table has objects for keys. Raises RemoteProtocolError."""
    document = dialect.read(data)
    try:
        queues = {msgspec.convert(dict(key), MessageQueue): value for key, value in document["offsetTable"].items()}
        return msgspec.convert({**document, "offsetTable": queues}, kind)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise RemoteProtocolError(f"not the statistics that were expected: {error}") from error
