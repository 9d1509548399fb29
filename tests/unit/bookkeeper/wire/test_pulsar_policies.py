"""Policies of namespaces, as brokers of Pulsar 4.2.4 wrote them."""

from __future__ import annotations

import json
from zlib import crc32

import pytest

from tallystick.bookkeeper.wire.pulsar_policies import (
    UNLIMITED,
    NamespacePolicies,
    bundle_of,
    decode_broker,
    decode_namespace,
    encode_namespace,
    encode_tenant,
)
from tallystick.errors import MetadataError

# Of ``public/default``, after its retention was set to -1 in time and size.
RECORDED = (
    b'{"auth_policies":{"namespace_auth":{},"destination_auth":{},"subscription_auth_roles":{}},'
    b'"replication_clusters":["tally"],"allowed_clusters":[],"bundles":{"boundaries":["0x00000000","0x40000000",'
    b'"0x80000000","0xc0000000","0xffffffff"],"numBundles":4},"backlog_quota_map":{},"clusterDispatchRate":{},'
    b'"topicDispatchRate":{},"subscriptionDispatchRate":{},"replicatorDispatchRate":{},"clusterSubscribeRate":{},'
    b'"publishMaxMessageRate":{},"latency_stats_sample_rate":{},"retention_policies":{"retentionTimeInMinutes":-1,'
    b'"retentionSizeInMB":-1},"deleted":false,"encryption_required":false,"subscription_auth_mode":"None",'
    b'"offload_threshold":-1,"offload_threshold_in_seconds":-1,"schema_compatibility_strategy":"UNDEFINED",'
    b'"schema_validation_enforced":false,"subscription_types_enabled":[],"properties":{},"migrated":false}'
)


def policies(**fields: object) -> NamespacePolicies:
    return decode_namespace(json.dumps(fields).encode(), where="zk:/x")


def test_what_a_broker_wrote_is_read() -> None:
    assert decode_namespace(RECORDED, where="zk:/x") == NamespacePolicies(UNLIMITED, UNLIMITED)


def test_a_tenant_and_a_namespace_are_written_as_a_broker_does() -> None:
    assert encode_tenant("tally") == b'{"allowedClusters":["tally"],"adminRoles":[]}'
    written, recorded = json.loads(encode_namespace("tally")), json.loads(RECORDED)
    assert written == {field: recorded[field] for field in written}
    assert decode_namespace(encode_namespace("tally"), where="zk:/x").keeps_all


def test_what_policies_leave_open_is_the_default_of_a_broker() -> None:
    assert policies() == policies(retention_policies=None, inactive_topic_policies=None) == NamespacePolicies()
    assert NamespacePolicies() == NamespacePolicies(0, 0, True, 60, False, False, False)


def test_all_that_deletes_is_read() -> None:
    limits = {"retentionTimeInMinutes": 90, "retentionSizeInMB": 3}
    assert policies(retention_policies=limits) == NamespacePolicies(5400, 3 << 20)
    mode = {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "maxInactiveDurationSeconds": 7}
    assert policies(inactive_topic_policies={**mode, "deleteWhileInactive": True}) == NamespacePolicies(
        max_inactive_s=7, deletes_caught_up=True
    )
    assert not policies(inactive_topic_policies={"deleteWhileInactive": False}).deletes_inactive
    assert policies(message_ttl_in_seconds=60).moves_subscriptions
    assert policies(
        backlog_quota_map={"destination_storage": {"policy": "consumer_backlog_eviction"}}
    ).moves_subscriptions
    assert not policies(backlog_quota_map={"destination_storage": {"policy": "producer_exception"}}).moves_subscriptions
    assert policies(subscription_expiration_time_minutes=5).deletes_subscriptions


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff\x00", b'{"retention_policies":3}', b'{"backlog_quota_map":{"a":1}}', b"[" * 100_000]
)
def test_foreign_bytes_are_refused_with_their_place(data: bytes) -> None:
    with pytest.raises(MetadataError) as refused:
        decode_namespace(data, where="zk:/admin/policies/t/n")
    assert refused.value.path == "zk:/admin/policies/t/n"


def test_a_topic_is_in_the_bundle_of_its_hash() -> None:
    """The hashes are CRC-32 of names, as ``NamespaceBundleFactory`` has them; a broker agrees in ``tests/interop``."""
    names = {bundle_of(f"public/default/persistent/topic-{number}", RECORDED) for number in range(40)}
    assert names == {"0x00000000_0x40000000", "0x40000000_0x80000000", "0x80000000_0xc0000000", "0xc0000000_0xffffffff"}
    one = b'{"bundles":{"boundaries":["0x00000000","0xffffffff"],"numBundles":1}}'
    assert bundle_of("t/n/persistent/any+topic", one) == "0x00000000_0xffffffff"
    for data in (b"{}", b"3", b'{"bundles":{"boundaries":["x"]}}', b'{"bundles":{"boundaries":["0x0"]}}'):
        assert bundle_of("t/n/persistent/topic", data) is None


def test_the_greatest_hash_is_in_the_last_bundle() -> None:
    """It is the end of that, which belongs to no bundle otherwise."""
    stream = "t/n/persistent/1000100100101010100000010101010000000000"
    assert crc32(b"persistent://t/n/" + stream.rpartition("/")[2].encode()) == 0xFFFFFFFF
    assert bundle_of(stream, RECORDED) == "0xc0000000_0xffffffff"


def test_the_owner_of_a_bundle_says_where_it_is() -> None:
    node = b'{"nativeUrl":"pulsar://127.0.0.1:36237","httpUrl":"http://localhost:44415","disabled":false}'
    assert decode_broker(node) == "pulsar://127.0.0.1:36237"
    assert decode_broker(b"{}") is None and decode_broker(b"no") is None
