"""A cluster in one SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a metadata file can be."""
    return str(tmp_path / "metadata.db")


@pytest.fixture
async def driver(path: str) -> AsyncIterator[ClusterMetadata]:
    """An empty cluster in that file."""
    made = ClusterMetadata(SqliteStore(path))
    await made.init_cluster()
    yield made
    await made.close()


@pytest.fixture
def stranger(path: str, driver: ClusterMetadata) -> Iterator[SqliteTree]:
    """Another connection, as of another process."""
    made = SqliteTree(path)
    yield made
    made.close()
