"""What a program's own metrics show of its ledger client."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.metrics import register


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
