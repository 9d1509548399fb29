"""Settings of the name server, with the original's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.errors import UsageError
from tallystick.rocketmq.remoting.tls import TlsSettings


@dataclass(frozen=True)
class NameServerSettings:
    """One line a setting; units in the names, the original's name in brackets. Raises UsageError."""

    bind_host: str = "127.0.0.1"  # (bindAddress)
    port: int = 9876  # (listenPort); 0 takes a free one
    scan_interval_s: float = 5.0  # how often silent brokers are looked for (scanNotActiveBrokerInterval)
    broker_timeout_s: float = 120.0  # how long a broker that names no time of its own may be silent
    kv_config_path: str = ""  # where the key-value configuration is kept (kvConfigPath); empty: in memory only
    wait_for_service: bool = False  # answer no routes at first, until brokers had time to register (needWaitForService)
    wait_for_service_s: float = 45.0  # (waitSecondsForService)
    delete_topic_with_registration: bool = False  # a topic missing in a registration goes (deleteTopicWithBroker…)
    support_acting_master: bool = False  # a read-only slave is shown as the master when there is none
    order_message: bool = False  # routes carry the topic's order configuration (orderMessageEnable)
    return_order_topics: bool = True  # so does the response to a registration (returnOrderTopicConfigToBroker)
    users_file: str = ""  # who may ask, and who may register; empty: everybody: ours only (usersFile)
    anonymous: bool = False  # and requests without a key pass: ours only (allowAnonymous)
    list_topics: bool = True  # lists of topics by cluster or kind are answered (enableTopicList)
    list_all_topics: bool = True  # the list of all topics is answered (enableAllTopicList)
    http_enabled: bool = False  # /metrics and /health (metricsExporterType=PROM)
    http_host: str = "127.0.0.1"  # (metricsPromExporterHost)
    http_port: int = 5558  # (metricsPromExporterPort); 0 takes a free one

    tls: TlsSettings = field(default_factory=TlsSettings)

    def __post_init__(self) -> None:
        for name, port in (("port", self.port), ("metricsPromExporterPort", self.http_port)):
            if not 0 <= port <= 65535:
                raise UsageError(f"{name} must be 0 to 65535", port=port)
        for name in ("scan_interval_s", "broker_timeout_s"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be above 0", value=getattr(self, name))
        if self.wait_for_service_s < 0:
            raise UsageError("wait_for_service_s must not be negative", value=self.wait_for_service_s)
