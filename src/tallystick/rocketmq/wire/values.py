"""The nouns of the primary-replica log: codes, flags, versions, topics, groups, queues, routes, heartbeats.

Codes are only those that some part of ours sends, serves or tells apart; any other gets the original's response for an
unsupported one. Values are frozen msgspec structs: beside a field stands its name in RocketMQ's JSON, and
``dialect.py`` reads and writes them as they are. A field that JSON leaves out or sets to null has its default.

Sources: ``RequestCode``, ``ResponseCode``, ``LanguageCode``, ``PutMessageStatus``, ``PermName``, ``MessageSysFlag``,
``PullSysFlag``, ``DataVersion``, ``TopicConfig``, ``SubscriptionGroupConfig``, ``TopicRouteData``, ``HeartbeatData``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import field

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire.numbers import number_of

# A Java int and long: what does not fit would be refused at the latest where it is stored.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

if TYPE_CHECKING:
    EnumName = str
else:
    EnumName = str | int  # of an enum: Java writes its name, C++ its number; ``__post_init__`` makes it the name

MASTER_ID = 0  # the broker id of a master; a slave has a greater one
VERSION = 513  # what 5.5.0 says of itself; to peers an opaque number, except for the two below
RETRY_PREFIX = "%RETRY%"  # before a group: the topic of what its consumers gave back
DLQ_PREFIX = "%DLQ%"  # before a group: the topic of what was given back too often
FIRST_STANDARD_JSON_VERSION = 401  # from here on route responses quote their integer keys
FIRST_MAPPING_VERSION = 413  # from here on a compressed registration ends with queue mappings


class RequestCode(enum.IntEnum):
    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    SEND_MESSAGE_V2 = 310
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    GET_BROKER_HA_STATUS = 907
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010
    GET_TABLE_PAGE = 31_001  # ours alone, as what follows; binary headers have two bytes for a code
    SEND_SINK_BATCH = 31_002
    GET_SINK_STATE = 31_003
    FORGET_SINK = 31_004
    GET_AUTHENTICATION = 31_005


class ResponseCode(enum.IntEnum):
    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    GO_AWAY = 1500
    # Ours alone, to what a sink of ours sends:
    SINK_GAP = 31_101  # messages before this one are missing
    SINK_DIFFERS = 31_102  # another message has this number
    SINK_PARTITIONS = 31_103  # the batch was begun with another number of partitions
    SINK_QUERY = 31_104  # another query, or a later batch, is recorded
    SINK_FULL = 31_105  # the broker has as many sinks as it may


class PutStatus(enum.Enum):
    """How an append ended, in the original's order. ``response_code`` is what the producer is told."""

    PUT_OK = enum.auto()
    FLUSH_DISK_TIMEOUT = enum.auto()
    FLUSH_SLAVE_TIMEOUT = enum.auto()
    SLAVE_NOT_AVAILABLE = enum.auto()
    SERVICE_NOT_AVAILABLE = enum.auto()
    CREATE_MAPPED_FILE_FAILED = enum.auto()
    MESSAGE_ILLEGAL = enum.auto()
    PROPERTIES_SIZE_EXCEEDED = enum.auto()
    OS_PAGE_CACHE_BUSY = enum.auto()
    UNKNOWN_ERROR = enum.auto()
    IN_SYNC_REPLICAS_NOT_ENOUGH = enum.auto()

    @property
    def response_code(self) -> ResponseCode:
        return _OF_STATUS.get(self, ResponseCode.SYSTEM_ERROR)


_OF_STATUS = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}


class Flag(enum.IntFlag):
    """Of a command."""

    NONE = 0
    RESPONSE = 1
    ONE_WAY = 2


class SysFlag(enum.IntFlag):
    """Of a stored message. Bits 8 to 10 name the compression; zlib has two spellings (bit 0 alone is the older one)."""

    NONE = 0
    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


TRANSACTION_MASK = SysFlag.ROLLBACK
COMPRESSION_MASK = 0x700


class PullFlag(enum.IntFlag):
    """``sysFlag`` of a pull."""

    NONE = 0
    COMMIT_OFFSET = 0x1
    SUSPEND = 0x2
    SUBSCRIPTION = 0x4  # the request says what it wants; else the group's heartbeat did
    CLASS_FILTER = 0x8
    LITE = 0x10


class Perm(enum.IntFlag):
    """Of a topic or its queues at one broker."""

    NONE = 0
    INHERIT = 0x1  # new topics may be made after this one
    WRITE = 0x2
    READ = 0x4
    PRIORITY = 0x8


class Language(enum.Enum):
    """What a peer is written in: the value is its name in JSON headers, ``number`` stands in binary ones."""

    JAVA = "JAVA"
    CPP = "CPP"
    DOTNET = "DOTNET"
    PYTHON = "PYTHON"
    DELPHI = "DELPHI"
    ERLANG = "ERLANG"
    RUBY = "RUBY"
    OTHER = "OTHER"
    HTTP = "HTTP"
    GO = "GO"
    PHP = "PHP"
    OMS = "OMS"
    RUST = "RUST"
    NODE_JS = "NODE_JS"

    @classmethod
    def _missing_(cls, value: object) -> Language:
        return cls.OTHER  # a language that we do not know is no reason to refuse its request

    @property
    def number(self) -> int:
        return _LANGUAGES.index(self)

    @classmethod
    def of_number(cls, number: int) -> Language:
        return _LANGUAGES[number] if 0 <= number < len(_LANGUAGES) else cls.OTHER


_LANGUAGES = tuple(Language)


class Serialization(enum.IntEnum):
    """How a command's header is written."""

    JSON = 0
    BINARY = 1  # the original calls it ROCKETMQ


class DataVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a table. Two tables are the same when their versions are equal; which is newer is not asked
    (H12)."""

    state_version: Int64 = 0
    timestamp: Int64 = 0  # ms
    counter: Int64 = 0

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(self.state_version, now_ms, self.counter + 1)


MAX_QUEUES = 65_536  # of one topic at one broker; the original has no limit, and asks each of them for some responses


def _use_names(struct: msgspec.Struct, **names: Sequence[str]) -> None:
    """Make numbers of enums their names, by their order. Raises RemoteProtocolError for one too high."""
    for attribute, constants in names.items():
        value = getattr(struct, attribute)
        number = value if isinstance(value, int) else number_of(value)
        if number is not None:
            if not 0 <= number < len(constants):
                raise RemoteProtocolError(f"{attribute} has no number {number}")
            msgspec.structs.force_setattr(struct, attribute, constants[number])


FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class TopicConfig(msgspec.Struct, frozen=True):
    name: str = field(name="topicName")
    read_queues: Int32 = field(default=16, name="readQueueNums")
    write_queues: Int32 = field(default=16, name="writeQueueNums")
    perm: Int32 = int(Perm.READ | Perm.WRITE)
    filter_type: EnumName = field(default="SINGLE_TAG", name="topicFilterType")
    sys_flag: Int32 = field(default=0, name="topicSysFlag")
    order: bool = False
    attributes: dict[str, str] = {}

    def __post_init__(self) -> None:
        _use_names(self, filter_type=FILTER_TYPES)


class GroupConfig(msgspec.Struct, frozen=True):
    """A subscription group. ``retry_policy`` and ``subscriptions`` are kept and passed on as the peer wrote them."""

    name: str = field(name="groupName")
    consume_enable: bool = field(default=True, name="consumeEnable")
    consume_from_min_enable: bool = field(default=True, name="consumeFromMinEnable")
    consume_broadcast_enable: bool = field(default=True, name="consumeBroadcastEnable")
    consume_message_orderly: bool = field(default=False, name="consumeMessageOrderly")
    retry_queues: Int32 = field(default=1, name="retryQueueNums")
    retry_max_times: Int32 = field(default=16, name="retryMaxTimes")
    retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"}, name="groupRetryPolicy")
    broker_id: Int64 = field(default=MASTER_ID, name="brokerId")
    slow_broker_id: Int64 = field(
        default=1, name="whichBrokerWhenConsumeSlowly"
    )  # where one that lags far behind is sent
    notify_ids_changed: bool = field(default=True, name="notifyConsumerIdsChangedEnable")
    sys_flag: Int32 = field(default=0, name="groupSysFlag")
    consume_timeout_minutes: Int32 = field(default=15, name="consumeTimeoutMinute")
    subscriptions: list[dict[str, Any]] | None = field(default=None, name="subscriptionDataSet")
    attributes: dict[str, str] = {}


class MessageQueue(msgspec.Struct, frozen=True, order=True):
    """One queue of a topic at one broker set."""

    topic: str
    broker: str = field(name="brokerName")
    queue_id: Int32 = field(name="queueId")


class QueueRoute(msgspec.Struct, frozen=True):
    """How many queues of a topic a broker has, and what they allow."""

    broker: str = field(name="brokerName")
    read_queues: Int32 = field(name="readQueueNums")
    write_queues: Int32 = field(name="writeQueueNums")
    perm: Int32
    sys_flag: Int32 = field(default=0, name="topicSysFlag")

    @property
    def count(self) -> int:
        """How many different ones there are."""
        return max(self.read_queues, self.write_queues, 0)


class BrokerRoute(msgspec.Struct, frozen=True):
    """A master and its slaves: broker id to ``host:port``."""

    cluster: str
    name: str = field(name="brokerName")
    addresses: dict[Int64, str] = field(name="brokerAddrs")
    acting_master: bool = field(default=False, name="enableActingMaster")
    zone: str | None = field(default=None, name="zoneName")


class TopicRoute(msgspec.Struct, frozen=True):
    brokers: list[BrokerRoute] = field(name="brokerDatas")
    queues: list[QueueRoute] = field(name="queueDatas")
    filter_servers: dict[str, list[str]] = field(default_factory=dict, name="filterServerTable")
    order_conf: str | None = field(default=None, name="orderTopicConf")


class Subscription(msgspec.Struct, frozen=True):
    """The messages of a topic that a group consumes. ``codes`` are the Java hashes of ``tags``; both empty:
    everything."""

    topic: str
    expression: str = field(default="*", name="subString")
    tags: tuple[str, ...] = field(default=(), name="tagsSet")
    codes: tuple[Int32, ...] = field(default=(), name="codeSet")
    version: Int64 = field(default=0, name="subVersion")  # ms
    kind: str = field(default="TAG", name="expressionType")
    class_filter: bool = field(default=False, name="classFilterMode")


class ConsumerGroup(msgspec.Struct, frozen=True):
    """One consumer group of a client, in its heartbeat."""

    name: str = field(name="groupName")
    consume_type: EnumName = field(default="CONSUME_ACTIVELY", name="consumeType")
    message_model: EnumName = field(default="CLUSTERING", name="messageModel")
    consume_from: EnumName = field(default="CONSUME_FROM_LAST_OFFSET", name="consumeFromWhere")
    subscriptions: tuple[Subscription, ...] = field(default=(), name="subscriptionDataSet")
    unit_mode: bool = field(default=False, name="unitMode")

    def __post_init__(self) -> None:
        _use_names(self, consume_type=CONSUME_TYPES, message_model=MESSAGE_MODELS, consume_from=CONSUME_FROM)


class ProducerGroup(msgspec.Struct, frozen=True):
    name: str = field(name="groupName")


class Heartbeat(msgspec.Struct, frozen=True):
    client_id: str = field(name="clientID")
    producers: tuple[ProducerGroup, ...] = field(default=(), name="producerDataSet")
    consumers: tuple[ConsumerGroup, ...] = field(default=(), name="consumerDataSet")
    fingerprint: Int32 = field(
        default=0, name="heartbeatFingerprint"
    )  # not 0: the form that may leave subscriptions out
    without_subscriptions: bool = field(default=False, name="withoutSub")
