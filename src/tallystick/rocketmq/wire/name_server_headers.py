"""The typed headers of the requests to a name server, and of its responses; see ``headers.py``."""

from __future__ import annotations

from tallystick.rocketmq.wire.headers import Header
from tallystick.rocketmq.wire.values import Int32, Int64


class BrokerHeader(Header, frozen=True, kw_only=True):
    """Of UNREGISTER_BROKER and QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class RegisterBrokerHeader(BrokerHeader, frozen=True, kw_only=True):
    ha_server_addr: str
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None  # none: a broker too old to know of it
    compressed: bool = False
    body_crc32: Int32 = 0  # CRC32 & 0x7fffffff; 0 is not checked


class RegisterBrokerResponse(Header, frozen=True):
    """To REGISTER_BROKER: where a slave finds its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerHeartbeatHeader(Header, frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64 | None = None


class RouteHeader(Header, frozen=True):
    topic: str
    accept_standard_json_only: bool | None = None


class MemberGroupHeader(Header, frozen=True):
    cluster_name: str
    broker_name: str


class BrokerNameHeader(Header, frozen=True):
    """Of WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWriteResponse(Header, frozen=True):
    wipe_topic_count: Int32


class AddWriteResponse(Header, frozen=True):
    add_topic_count: Int32


class ClusterHeader(Header, frozen=True):
    """Of GET_TOPICS_BY_CLUSTER."""

    cluster: str


class DataVersionResponse(Header, frozen=True):
    """To QUERY_DATA_VERSION."""

    changed: bool


class KvHeader(Header, frozen=True):
    """Of PUT_KV_CONFIG, GET_KV_CONFIG and DELETE_KV_CONFIG."""

    namespace: str
    key: str
    value: str | None = None


class NamespaceHeader(Header, frozen=True):
    """Of GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class ValueResponse(Header, frozen=True):
    value: str
