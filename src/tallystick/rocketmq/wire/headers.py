"""The typed headers of requests and responses: what stands in ``extFields``, by code.

``XHeader.of(command)`` reads one straight from the undecoded JSON (or from the fields of a binary header) and raises
RemoteProtocolError if a mandatory field is missing or a value is none of its type; ``to_fields()`` writes one. Fields
that are None are left out. The members of responses stand in the order in which the original's hash map happens to
write them.
Sources: the classes of ``remoting.protocol.header``; facts of 5.5.0 where they differ (``bname``, ``maxMsgBytes``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self, cast

import msgspec
from msgspec import Raw, field

from tallystick.codec.requests import Forms, forms_of
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire.remoting import Command, TypedFields, text_of
from tallystick.rocketmq.wire.values import Int32, Int64, Language, RequestCode, Serialization


class Header(TypedFields, frozen=True, rename="camel"):
    """The base of all headers. Names are the original's unless a field says otherwise."""

    @classmethod
    def of(cls, command: Command) -> Self:
        """Returns the header in a command's fields. Raises RemoteProtocolError."""
        ext = command.ext
        if isinstance(ext, cls):
            return ext
        if isinstance(ext, Raw):
            try:
                header: Self = _decoder(cls)(ext)
                return header
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # the tolerant way below succeeds or says what is wrong
        fields = command.fields
        try:
            return msgspec.convert(fields, cls, strict=False)
        except msgspec.ValidationError as error:
            missing_fields = [name for name in _mandatory(cls) if name not in fields]
            raise RemoteProtocolError(
                f"the custom field <{missing_fields[0]}> is null" if missing_fields else str(error)
            ) from error


@functools.cache
def _decoder(kind: Any) -> Callable[[Raw], Any]:
    return msgspec.json.Decoder(kind, strict=False).decode


@functools.cache
def _mandatory(kind: Any) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(kind) if each.required]


# Producers


class SendHeader(Header, frozen=True):
    """Of SEND_MESSAGE; in SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE the same fields have letters for names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker: str | None = field(default=None, name="bname")

    def to_letters(self) -> dict[str, str]:
        """Returns the fields of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""
        return {
            letter: value if type(value) is str else text_of(value)
            for letter, attribute in _LETTERS
            if (value := getattr(self, attribute)) is not None
        }


_LETTERS = list(zip("abcdefghijklmn", SendHeader.__struct_fields__, strict=True))
# The same struct under other names: a second list of the fields would have to be kept equal to the first.
_SendHeaderV2 = cast(
    "type[SendHeader]",
    msgspec.defstruct(
        "_SendHeaderV2",
        [
            (each.name, each.type) if each.required else (each.name, each.type, each.default)
            for each in msgspec.structs.fields(SendHeader)
        ],
        bases=(SendHeader,),
        rename={attribute: letter for letter, attribute in _LETTERS},
        frozen=True,
    ),
)


_SEND_MESSAGE = int(RequestCode.SEND_MESSAGE)  # a plain number: an enum's attribute costs ten times a name


def read_send(command: Command) -> SendHeader:
    """Returns the header of any of the three requests that send. Raises RemoteProtocolError."""
    return (SendHeader if command.code == _SEND_MESSAGE else _SendHeaderV2).of(command)


class SendResponse(Header, frozen=True, kw_only=True):
    queue_id: Int32
    transaction_id: str | None = None  # the UNIQ_KEY of the message
    msg_id: str  # the offset message id; of a batch all of them, by commas
    trace_on: str = field(default="true", name="TRACE_ON")
    region: str = field(default="DefaultRegion", name="MSG_REGION")
    queue_offset: Int64

    def to_fields(self) -> dict[str, str]:
        """Returns what ``TypedFields`` returns. It is called for each message, and takes a third of the time."""
        fields = {"queueId": str(self.queue_id)}
        if self.transaction_id is not None:
            fields["transactionId"] = self.transaction_id
        fields["msgId"] = self.msg_id
        fields["TRACE_ON"] = self.trace_on
        fields["MSG_REGION"] = self.region
        fields["queueOffset"] = str(self.queue_offset)
        return fields


class SendBackHeader(Header, frozen=True, kw_only=True):
    """Of CONSUMER_SEND_MSG_BACK. Ours is ``copy``: where an earlier request stored it (see ``SendBackResponse``)."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    broker: str | None = field(default=None, name="bname")
    copy: Int64 | None = field(default=None, name="tallyCopy")


# Consumers


class PullHeader(Header, frozen=True):
    """Of PULL_MESSAGE and LITE_PULL_MESSAGE. Ours is ``mark`` (see ``Reads.mark``): that of the last message that the
    consumer had, or an empty one; the response has one, too."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    broker: str | None = field(default=None, name="bname")
    mark: str | None = field(default=None, name="tallyMark")


class PullResponse(Header, frozen=True, kw_only=True):
    """To PULL_MESSAGE and LITE_PULL_MESSAGE; the status (FOUND …) is the remark. Ours is ``mark``: that of the message
    before ``next_begin_offset``."""

    suggest_which_broker_id: Int64
    group_sys_flag: Int32 = 0
    next_begin_offset: Int64
    max_offset: Int64
    min_offset: Int64
    topic_sys_flag: Int32 = 0
    mark: str | None = field(default=None, name="tallyMark")

    def to_fields(self) -> dict[str, str]:
        """Returns what ``TypedFields`` returns. It is called for each pull, and takes a tenth of the time."""
        fields = {
            "suggestWhichBrokerId": str(self.suggest_which_broker_id),
            "groupSysFlag": str(self.group_sys_flag),
            "nextBeginOffset": str(self.next_begin_offset),
            "maxOffset": str(self.max_offset),
            "minOffset": str(self.min_offset),
            "topicSysFlag": str(self.topic_sys_flag),
        }
        if self.mark is not None:
            fields["tallyMark"] = self.mark
        return fields


class QueueHeader(Header, frozen=True, kw_only=True):
    """Of GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32
    broker: str | None = field(default=None, name="bname")


class SearchOffsetHeader(QueueHeader, frozen=True, kw_only=True):
    timestamp: Int64
    boundary_type: str | None = None  # LOWER, which is what none means too, or UPPER


class OffsetResponse(Header, frozen=True):
    offset: Int64


class TimestampResponse(Header, frozen=True):
    timestamp: Int64


class QueryOffsetHeader(QueueHeader, frozen=True, kw_only=True):
    """Of QUERY_CONSUMER_OFFSET. Ours is ``mark``: an empty one asks for one in the response."""

    consumer_group: str
    set_zero_if_not_found: bool | None = None
    mark: str | None = field(default=None, name="tallyMark")


class UpdateOffsetHeader(QueueHeader, frozen=True, kw_only=True):
    """Of UPDATE_CONSUMER_OFFSET. Ours are ``resets``: a slave passes on a commit made there, with the counter it knew;
    ``went_back``: the client committed a higher offset before, perhaps at a slave; ``mark``: as in ``PullHeader``."""

    consumer_group: str
    commit_offset: Int64
    resets: Int64 | None = field(default=None, name="tallyResets")
    went_back: bool | None = field(default=None, name="tallyWentBack")
    mark: str | None = field(default=None, name="tallyMark")


class ViewMessageHeader(Header, frozen=True, kw_only=True):
    offset: Int64
    topic: str | None = None


class QueryMessageHeader(Header, frozen=True, kw_only=True):
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None  # K, U or T
    unique_key: bool | None = field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponse(Header, frozen=True):
    last_offset: Int64 = field(name="indexLastUpdatePhyoffset")
    last_timestamp: Int64 = field(name="indexLastUpdateTimestamp")


class ConsumerGroupHeader(Header, frozen=True):
    """Of GET_CONSUMER_LIST_BY_GROUP, GET_CONSUMER_CONNECTION_LIST and NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


class ProducerGroupHeader(Header, frozen=True):
    """Of GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class UnregisterClientHeader(Header, frozen=True, kw_only=True):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class HeartbeatResponse(Header, frozen=True):
    second_form: bool = field(default=True, name="IS_SUPPORT_HEART_BEAT_V2")
    subscriptions_wanted: bool = field(default=True, name="IS_SUB_CHANGE")


# Topics, groups and their tables


class CreateTopicHeader(Header, frozen=True, kw_only=True):
    """Of UPDATE_AND_CREATE_TOPIC. ``attributes`` are changes: ``+name=value`` or ``-name``, by commas."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class TopicHeader(Header, frozen=True):
    """Of GET_TOPIC_CONFIG, GET_TOPIC_STATS_INFO, QUERY_TOPIC_CONSUME_BY_WHO and the requests that delete a topic."""

    topic: str


class GroupHeader(Header, frozen=True):
    """Of GET_SUBSCRIPTIONGROUP_CONFIG and QUERY_TOPICS_BY_CONSUMER."""

    group: str


class DeleteGroupHeader(Header, frozen=True):
    group: str = field(name="groupName")
    clean_offset: bool = False


class TopicPageHeader(Header, frozen=True, kw_only=True):
    """Of GET_ALL_TOPIC_CONFIG. A command without fields asks for the whole table."""

    topic_seq: Int32
    data_version: str | None = None  # JSON; empty is none
    max_topic_num: Int32 | None = None


class TopicPageResponse(Header, frozen=True):
    total_topic_num: Int32


class GroupPageHeader(Header, frozen=True, kw_only=True):
    """Of GET_ALL_SUBSCRIPTIONGROUP_CONFIG. A command without fields asks for the whole table."""

    group_seq: Int32
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GroupPageResponse(Header, frozen=True):
    total_group_num: Int32


class TablePageHeader(Header, frozen=True, kw_only=True):
    """Of GET_TABLE_PAGE, ours alone: the entries of a table from place ``start`` on.

    ``snapshot`` is that of the page before; under another one the response begins at the first entry again.
    """

    table: str
    start: Int64 = 0
    snapshot: str | None = None


class TablePageResponse(Header, frozen=True, kw_only=True):
    """``next`` is where the next page begins; None if this one is the last."""

    snapshot: str
    next: Int64 | None = None


class SinkStateHeader(Header, frozen=True, kw_only=True):
    """Of GET_SINK_STATE, ours alone: how far an application has come in a topic. ``application`` is as
    ``SinkIdentity`` has it."""

    topic: str
    application: str
    partition: Int32


class SinkStateResponse(Header, frozen=True, kw_only=True):
    """The newest batch of the application, and the last message of the partition in it; None where there is none."""

    query: str | None = None
    batch: Int64 | None = None
    partitions: Int64 | None = None
    brokers: str | None = None
    sequence: Int64 | None = None
    queue_id: Int32 | None = None


class ConfigResponse(Header, frozen=True):
    """To GET_BROKER_CONFIG."""

    version: str  # JSON


# The requests that come most


def _without_others(kind: type[Header]) -> type[Header]:
    """Returns the same type, but that a field which it does not have is refused: what has one may be signed."""
    name = f"Usual{kind.__name__}"
    return cast("type[Header]", msgspec.defstruct(name, [], bases=(kind,), frozen=True, forbid_unknown_fields=True))


_SEND, _SEND_V2 = _without_others(SendHeader), _without_others(_SendHeaderV2)
_PULL = _without_others(PullHeader)
_BY_CODE = {
    RequestCode.SEND_MESSAGE: _SEND,
    RequestCode.SEND_MESSAGE_V2: _SEND_V2,
    RequestCode.SEND_BATCH_MESSAGE: _SEND_V2,
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
}
REQUESTS: Forms[Command] = forms_of(
    Command,
    {int(code): kind for code, kind in _BY_CODE.items()},
    Language,
    (Serialization.JSON, Serialization.BINARY),
)
