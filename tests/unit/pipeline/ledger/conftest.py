"""Three bookies in this process, and ledgers put there as a writer would have left them at a chosen moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import LedgerMetadata


class Store(Protocol):
    def __call__(self, ledger: int, metadata: LedgerMetadata, payloads: list[bytes], lag: int = 1) -> None: ...


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    """Bookies ``b0``, ``b1``, ``b2`` that remember what they were asked."""
    started = await SmallCluster().start(3)
    yield started
    await started.close()


@pytest.fixture
def store(cluster: SmallCluster) -> Store:
    """Put entries on their write sets; each says that its writer's LAC was ``lag`` entries before it."""

    def put(ledger: int, metadata: LedgerMetadata, payloads: list[bytes], lag: int = 1) -> None:
        digest = Digest.of(metadata.digest_type, metadata.password)
        length = 0
        for entry, payload in enumerate(payloads):
            length += len(payload)
            stored = digest.encode(EntryHeader(ledger, entry, max(entry - lag, -1), length), payload)
            for copy in range(metadata.write_quorum):
                bookie = metadata.ensemble_of(entry)[(entry + copy) % metadata.ensemble_size]
                cluster.bookies[bookie].put(ledger, entry, stored, metadata.password)

    return put
