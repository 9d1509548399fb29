"""What Pulsar's metadata have of tenants, namespaces and bundles, as far as a stream is concerned (``PolicyData``).

::

    <base>/admin/clusters/<cluster>                               a cluster of brokers
    <base>/admin/policies/<tenant>                                {"allowedClusters": [...], "adminRoles": []}
    <base>/admin/policies/<tenant>/<namespace>                    {"replication_clusters": [...], "bundles": ..., ...}
    <base>/admin/local-policies/<tenant>/<namespace>              {"bundles": ...}, once a broker serves the namespace
    <base>/namespace/<tenant>/<namespace>/<bundle>                {"nativeUrl": ...}, ephemeral: the broker that has it

A bundle is a range of the 32 bits of its topics' hashes: ``0x40000000_0x80000000``. What is not named here is kept out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import unquote_plus
from zlib import crc32

from tallystick.errors import MetadataError

UNLIMITED = -1
BUNDLES = 4  # of a new namespace (defaultNumberOfNamespaceBundles)
MINUTE_S = 60

Json = dict[str, Any]


@dataclass(frozen=True)
class NamespacePolicies:
    """What the policies of a namespace say about deleting. What they leave open is as a broker has it by default.

    A closed ledger that no subscription needs is deleted when it is older than ``retention_s``, or when those behind it
    have ``retention_bytes``. A topic that nobody uses is deleted after ``max_inactive_s``.
    """

    retention_s: int = 0
    retention_bytes: int = 0
    deletes_inactive: bool = True
    max_inactive_s: int = MINUTE_S
    deletes_caught_up: bool = False  # also a topic with subscriptions, when they have read everything
    moves_subscriptions: bool = False  # messages expire, or a backlog is evicted: subscriptions do not hold ledgers
    deletes_subscriptions: bool = False  # those that nobody uses for some time

    @property
    def keeps_all(self) -> bool:
        return self.retention_s == UNLIMITED and self.retention_bytes == UNLIMITED


def encode_tenant(cluster: str) -> bytes:
    return _encode({"allowedClusters": [cluster], "adminRoles": []})


def encode_namespace(cluster: str) -> bytes:
    """Encode the policies of a namespace whose topics are kept until somebody deletes them."""
    boundaries = [_boundary((1 << 32) * at // BUNDLES) for at in range(BUNDLES)] + [_boundary((1 << 32) - 1)]
    return _encode(
        {
            "replication_clusters": [cluster],
            "bundles": {"boundaries": boundaries, "numBundles": BUNDLES},
            "retention_policies": {"retentionTimeInMinutes": UNLIMITED, "retentionSizeInMB": UNLIMITED},
        }
    )


def decode_namespace(data: bytes, *, where: str) -> NamespacePolicies:
    """Raises MetadataError for what no broker wrote."""
    try:
        fields = _decode(data)
        retention = fields.get("retention_policies") or {}
        inactive = fields.get("inactive_topic_policies") or {}
        time, size = retention.get("retentionTimeInMinutes", 0), retention.get("retentionSizeInMB", 0)
        quotas = (fields.get("backlog_quota_map") or {}).values()
        return NamespacePolicies(
            retention_s=UNLIMITED if time < 0 else time * MINUTE_S,
            retention_bytes=UNLIMITED if size < 0 else size << 20,
            deletes_inactive=bool(inactive.get("deleteWhileInactive", True)),
            max_inactive_s=int(inactive.get("maxInactiveDurationSeconds") or MINUTE_S),
            deletes_caught_up=inactive.get("inactiveTopicDeleteMode") == "delete_when_subscriptions_caught_up",
            moves_subscriptions=(fields.get("message_ttl_in_seconds") or 0) > 0
            or any(quota.get("policy") == "consumer_backlog_eviction" for quota in quotas),
            deletes_subscriptions=(fields.get("subscription_expiration_time_minutes") or 0) > 0,
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise MetadataError(f"no policies of a namespace: {error}", path=where) from error


def bundle_of(stream: str, data: bytes) -> str | None:
    """Returns the name of the bundle in which a stream is as a topic, by the policies of its namespace; None if they do
    not say it."""
    tenant, namespace, domain, topic = stream.split("/")
    topic_hash = crc32(f"{domain}://{tenant}/{namespace}/{unquote_plus(topic)}".encode())
    try:
        boundaries = [int(each, 16) for each in _decode(data)["bundles"]["boundaries"]]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    for first, end in pairwise(boundaries):
        if first <= topic_hash < end or topic_hash == end == boundaries[-1]:
            return f"{_boundary(first)}_{_boundary(end)}"
    return None


def decode_broker(data: bytes) -> str | None:
    """Returns the address of the broker that has a bundle; None if the node does not say it."""
    try:
        fields = _decode(data)
    except (ValueError, RecursionError):
        return None
    address = fields.get("nativeUrl") or fields.get("nativeUrlTls") or fields.get("httpUrl")
    return address if isinstance(address, str) else None


def _encode(fields: Json) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> Json:
    """Raises ValueError, RecursionError."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    return fields


def _boundary(topic_hash: int) -> str:
    return f"0x{topic_hash:08x}"
