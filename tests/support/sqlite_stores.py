"""Clusters in a SQLite file: the store under a cluster's metadata, and where in the file a ledger is."""

from __future__ import annotations

from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.layout import ledger_path
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree


def store_of(driver: MetadataDriver) -> SqliteStore:
    assert isinstance(driver, ClusterMetadata) and isinstance(driver.store, SqliteStore)
    return driver.store


def at(ledger: int) -> str:
    return ledger_path("/ledgers", ledger)


def has(tree: SqliteTree, *ledgers: int) -> bool:
    return len(tree.get_many([at(ledger) for ledger in ledgers])) == len(ledgers)
