"""What brokers say to a name server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.wire.values import DataVersion, TopicConfig


def announcement(
    broker_id: int = 0,
    topics: Sequence[str] | Mapping[str, TopicConfig] = ("T1", "T2"),
    *,
    name: str = "b",
    cluster: str = "c",
    address: str | None = None,
    version: int = 1,
    state: int = 0,
    acting_master: bool | None = False,
) -> Announcement:
    address = address or f"{name}-{broker_id}:10911"
    table = topics if isinstance(topics, Mapping) else {topic: TopicConfig(topic, 4, 4) for topic in topics}
    ha_address = address.replace("10911", "10912")
    return Announcement(
        cluster, name, broker_id, address, ha_address, 120.0, acting_master, DataVersion(state, 0, version), table
    )
