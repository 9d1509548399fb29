"""What a program's own metrics show of its ledger client."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.metrics import register
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code


async def test_degraded_writers_are_counted_while_they_are_and_once_for_ever() -> None:
    cluster = await SmallCluster().start(3)
    try:
        client, registry = cluster.client(), CollectorRegistry()
        register(client, registry)

        def shown() -> list[str]:
            return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

        assert "ledger_degraded_writers 0.0" in shown()
        writers = [await client.create_ledger(3, write_quorum=3, ack_quorum=2) for _ in range(2)]
        await cluster.down("b1")

        async def are_degraded() -> bool:
            for writer in writers:  # a loss that comes behind the quorum is looked at with the next one (Q7)
                await writer.append(b"x")
            return len(client.degraded()) == 2

        await until(are_degraded)
        assert {"ledger_degraded_writers 2.0", "ledger_missing_bookies 1.0", "ledger_degraded_total 2.0"} <= set(
            shown()
        )
        await cluster.up("b1")
        await until(lambda: client.degraded() == {})
        assert {"ledger_degraded_writers 0.0", "ledger_degraded_total 2.0"} <= set(shown())
    finally:
        await cluster.close()


async def test_a_client_counts_what_it_does_and_what_goes_wrong() -> None:
    cluster = await SmallCluster().start(4)
    try:
        client = cluster.client(read_timeout_s=60.0)
        async with client.create_ledger(3, write_quorum=3, ack_quorum=3) as writer:
            await writer.append_batch([b"abc"] * 5)
            failing = cluster.bookies[writer.metadata.ensemble[0]]
            failing.misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) else None
            await writer.append(b"d")
            failing.misbehave = lambda request: HANG
            assert [entry.id async for entry in writer.read(0, 5)] == list(range(6))
            await cluster.down("b1")
            await cluster.up("b1")
            await writer.append(b"e")
        found = client.metrics()
    finally:
        await cluster.close()
    shown = {name: found[name] for name in found if "seconds" not in name}
    assert shown == {
        "ledger_degraded_writers": 0, "ledger_missing_bookies": 0, "ledger_degraded_total": 0,
        "ledger_adds_total": 7, "ledger_add_bytes_total": 17, 'ledger_add_errors_total{code="IO_ERROR"}': 1,
        "ledger_reads_total": 6, "ledger_read_bytes_total": 16, "ledger_speculative_reads_total": 1,
        "ledger_ensemble_changes_total": 1, "ledger_slow_bookies_total": 0, "ledger_reconnects_total": 1,
    }  # fmt: skip
    assert found["ledger_add_seconds_count"] == found['ledger_add_seconds_bucket{le="+Inf"}'] == 7
    assert found['ledger_read_seconds_bucket{le="1.0"}'] == 1 < found["ledger_read_seconds_count"] == 2
    assert found["ledger_read_seconds_sum"] >= 2.0
