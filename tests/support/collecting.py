"""A bookie whose collections a test begins: without waits, and over metadata that the test chooses."""

from __future__ import annotations

from typing import Any

from support.bookies import adds, talking
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.wire.codes import Code


def quick(bookie: Bookie) -> None:
    """No wait between the proofs."""
    core: Any = bookie.collection._core
    core._rules = type(core._rules)(0.0, core._rules.large_share, core._rules.large_count, core._rules.patience_s)


def asking(bookie: Bookie, driver: ClusterMetadata) -> None:
    bookie.collection._driver = driver


async def write(bookie: Bookie, *ledgers: int, flags: int = 0) -> None:
    async with talking(bookie) as peer:
        for ledger in ledgers:
            assert await peer.code(adds(ledger, [0], flags=flags)) == Code.OK
