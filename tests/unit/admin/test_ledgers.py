from collections.abc import AsyncIterator

import pytest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.admin import ledgers
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.errors import MetadataError, NoSuchLedger

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("bookie-1",)),))


class Driver(ClusterMetadata):
    """Ledgers 0 … count - 1; reading one of ``failing`` raises."""

    def __init__(self, count: int, failing: dict[int, Exception] | None = None) -> None:
        super().__init__(MemoryStore("ledgers that are listed"))
        self._count, self._failing = count, failing or {}

    async def ledgers(self) -> AsyncIterator[int]:
        for ledger in range(self._count):
            yield ledger

    async def read_ledger(self, ledger: int) -> Versioned[LedgerMetadata]:
        if ledger in self._failing:
            raise self._failing[ledger]
        return Versioned(METADATA, 0)


@pytest.mark.parametrize("count", [0, 1, ledgers.READS_AT_ONCE, 2 * ledgers.READS_AT_ONCE + 3])
async def test_every_ledger_is_listed_in_order(count: int) -> None:
    found = [ledger.id async for ledger in ledgers.list_ledgers(Driver(count))]
    assert found == list(range(count))


async def test_a_ledger_deleted_meanwhile_is_left_out() -> None:
    found = [one.id async for one in ledgers.list_ledgers(Driver(5, {3: NoSuchLedger(ledger=3)}))]
    assert found == [0, 1, 2, 4]


async def test_another_failure_is_never_a_shorter_list() -> None:
    with pytest.raises(MetadataError):
        _ = [one async for one in ledgers.list_ledgers(Driver(5, {3: MetadataError("lost")}))]


async def test_what_the_bookies_of_an_open_ledger_have_shows_that_it_is_degraded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledgers, "REPLICA_S", 0.1)
    cluster = await SmallCluster().start(4)
    try:
        writer = await cluster.client().create_ledger(4, write_quorum=4, ack_quorum=2)
        await writer.append(b"0")
        good, gone, hangs, fails = writer.metadata.ensemble
        await until(lambda: cluster.holders(writer.id, 0) == set(cluster.bookies))
        await cluster.down(gone)
        cluster.bookies[hangs].misbehave = lambda request: HANG
        cluster.bookies[fails].misbehave = lambda request: Code.IO_ERROR
        client = cluster.client()
        found = await ledgers.replicas(client.context.bookies, writer.id, writer.metadata)
        assert [(replica.bookie, replica.last_entry) for replica in found] == [
            (good, 0),
            (gone, None),
            (hangs, None),
            (fails, None),
        ]
        assert "not registered" in found[1].why and "in time" in found[2].why and found[3].why == "code IO_ERROR"
        [replica] = await ledgers.replicas(client.context.bookies, 99, LedgerMetadata(1, 1, 1, (Fragment(0, (good,)),)))
        assert str(replica) == f"{good}: no entry"
        assert cluster.bookies[good].fenced == set()
    finally:
        await cluster.close()
