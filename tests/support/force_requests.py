"""Requests of a writer's forces, as fake bookies get them."""

from __future__ import annotations

from typing import TypeVar

from support.fake_bookie import FakeBookie
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire import v3


def bookies_of(cluster: SmallCluster, writer: LedgerWriter) -> list[FakeBookie]:
    return [cluster.bookies[name] for name in writer.metadata.ensemble]


def forces(bookie: FakeBookie) -> int:
    return sum(isinstance(request, v3.ForceRequest) for request in bookie.requests_v3)


R = TypeVar("R", v3.ForceRequest, v3.EntryListRequest)


def hold_requests(bookie: FakeBookie, kind: type[R]) -> list[R]:
    """Let the bookie answer no request of this kind. Returns those that come."""
    held: list[R] = []

    def hold(request: v3.Request) -> bytes | None:
        if isinstance(request, kind):
            held.append(request)
            return None
        return FakeBookie.USUAL

    bookie.script_v3 = hold
    return held
