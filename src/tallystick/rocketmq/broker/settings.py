"""Settings of one broker, with the original's defaults unless a line says otherwise; ``keys.py`` reads files."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.access.settings import AccessSettings
from tallystick.rocketmq.broker.groups import MAX_GROUPS
from tallystick.rocketmq.broker.offsets import MAX_OFFSETS
from tallystick.rocketmq.broker.role import Role, check_role
from tallystick.rocketmq.broker.topics import MAX_TOPICS, TopicDefaults, refusal_of_topic
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.remoting.tls import TlsSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.values import MASTER_ID, Perm

FAST_PORT_BELOW = 2  # the second remoting port is so much below the first


@dataclass(frozen=True)
class BrokerSettings:
    """One line a setting; the original's key in brackets. Raises UsageError for values that cannot work.

    ``store`` and ``ha`` need not know the addresses: ``store_settings`` and ``ha_settings`` put them in.
    """

    store_dir: str  # all of the broker's files (storePathRootDir)
    name: str  # of the master and of its slaves (brokerName)
    cluster: str = "DefaultCluster"  # (brokerClusterName)
    broker_id: int = MASTER_ID  # 0 for a master, above 0 for a slave (brokerId)
    role: Role = Role.ASYNC_MASTER  # (brokerRole)
    host: str = "127.0.0.1"  # where all ports listen; the original's default is every interface (bindAddress)
    port: int = 10911  # 0 takes free ones (listenPort)
    ha_port: int | None = None  # none: the port after ``port`` (haListenPort)
    advertised_host: str | None = None  # what clients are told; none: ``host`` (brokerIP1)
    advertised_ha_host: str | None = None  # what slaves are told; none: as clients (brokerIP2)
    name_servers: tuple[str, ...] = ()  # host:port of each (namesrvAddr)
    register_timeout_ms: int = (
        2000  # for a name server's response; the original's is 24000 (registerBrokerTimeoutMills)
    )
    perm: int = int(Perm.READ | Perm.WRITE)  # of the whole broker (brokerPermission)
    auto_create_topics: bool = True  # a send to an unknown topic makes it (autoCreateTopicEnable)
    auto_create_groups: bool = True  # so does a pull by an unknown group (autoCreateSubscriptionGroup)
    default_queues: int = 8  # of topics that are made so (defaultTopicQueueNums)
    max_topics: int = MAX_TOPICS  # then no more are made; retry and dead-letter topics are: ours only (maxTopics)
    max_groups: int = MAX_GROUPS  # ours only (maxGroups)
    max_offsets: int = MAX_OFFSETS  # of all groups in all queues: ours only (maxOffsets)
    slave_read: bool = True  # slaves serve consumers; the original's default is false (slaveReadEnable)
    lite_pull: bool = True  # (litePullMessageEnable)
    long_polling: bool = True  # a pull that finds nothing waits as long as it wants to (longPollingEnable)
    short_polling_ms: int = 1000  # and else so long (shortPollingTimeMills)
    notify_ids_changed: bool = True  # consumers are told when their group changes (notifyConsumerIdsChangedEnable)
    http_enabled: bool = False  # /metrics and /health (metricsExporterType=PROM)
    http_host: str = "127.0.0.1"  # (metricsPromExporterHost)
    http_port: int = 5557  # (metricsPromExporterPort)
    access: AccessSettings = field(default_factory=AccessSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    ha: HaSettings = field(default_factory=HaSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    remoting: RemotingSettings = field(default_factory=RemotingSettings)

    def __post_init__(self) -> None:
        if not self.store_dir.startswith("/"):
            raise UsageError("storePathRootDir is an absolute path", value=self.store_dir)
        for key, name in (("brokerName", self.name), ("brokerClusterName", self.cluster)):
            if refusal_of_topic(name) is not None:  # topics are named after them
                raise UsageError(f"{key} may have letters, digits and % | _ -", value=name)
        check_role(self.role, self.broker_id)
        if self.port and not FAST_PORT_BELOW < self.port <= 65535:
            raise UsageError("listenPort is not a port with room for another one two below it", value=self.port)
        if self.perm not in (Perm.WRITE, Perm.READ, Perm.READ | Perm.WRITE):
            raise UsageError("brokerPermission is 2 (write), 4 (read) or 6 (both)", value=self.perm)
        for key, port in (("haListenPort", self.listen_ha_port), ("metricsPromExporterPort", self.http_port)):
            if not 0 <= port <= 65535:
                raise UsageError(f"{key} is not a port", value=port)
        if self.port and self.listen_ha_port in (self.port, self.port - FAST_PORT_BELOW):
            other_ports = f"{self.port} and {self.port - FAST_PORT_BELOW}"
            raise UsageError(
                f"haListenPort is a port of its own: {other_ports} are those of listenPort", value=self.ha_port
            )
        for key, number in (
            ("defaultTopicQueueNums", self.default_queues),
            ("maxTopics", self.max_topics),
            ("maxGroups", self.max_groups),
            ("maxOffsets", self.max_offsets),
            ("shortPollingTimeMills", self.short_polling_ms),
            ("registerBrokerTimeoutMills", self.register_timeout_ms),
        ):
            if number < 1:
                raise UsageError(f"{key} must be above 0", value=number)
        for key, host in (("brokerIP1", self.client_host), ("brokerIP2", self.slave_host)):
            if not _is_address(host):
                raise UsageError(f"{key} is an IP address: message ids hold it", value=host)
            if ipaddress.ip_address(host).is_unspecified:  # which means each reader's own machine
                raise UsageError(
                    f"{key} must be set, to an address that clients and slaves can connect to: nobody can be told "
                    f"{host}, every interface of this machine",
                    bindAddress=self.host,
                )

    @property
    def client_host(self) -> str:
        return self.advertised_host or self.host

    @property
    def slave_host(self) -> str:
        return self.advertised_ha_host or self.client_host

    @property
    def listen_ha_port(self) -> int:
        return self.ha_port if self.ha_port is not None else self.port + 1 if self.port else 0

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def topic_defaults(self) -> TopicDefaults:
        return TopicDefaults(self.name, self.cluster, self.default_queues, self.auto_create_topics)

    def store_settings(self, port: int) -> StoreSettings:
        """Returns the settings of the store, with the address for its records; ``port`` is the one that clients use."""
        return replace(self.store, store_host=encode_host(self.client_host, port))

    def ha_settings(self, broker_id: int) -> HaSettings:
        return replace(
            self.ha,
            host=self.host,
            port=self.listen_ha_port,
            slave_id=f"{self.name}:{broker_id}",
            sync_flush=self.store.sync_flush,
            asks=(self.tls.listens or self.access.authenticates) and not self.access.anonymous,
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
