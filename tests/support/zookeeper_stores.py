"""The store and the session under a cluster's metadata in ZooKeeper."""

from __future__ import annotations

from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.zk_session import ZkSession
from tallystick.bookkeeper.metadata.zookeeper import ZooKeeperStore


def store_of(driver: MetadataDriver) -> ZooKeeperStore:
    assert isinstance(driver, ClusterMetadata) and isinstance(driver.store, ZooKeeperStore)
    return driver.store


def session_of(driver: MetadataDriver) -> ZkSession:
    return store_of(driver).session
