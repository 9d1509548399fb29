"""What a client of bookies shows of itself in the metrics of the program that it is part of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tallystick.bookkeeper.ledger.client import BookKeeper

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric


def register(client: BookKeeper, registry: CollectorRegistry) -> None:
    """Add ``ledger_degraded_writers``, ``ledger_missing_bookies``, ``ledger_degraded_total``. One client a registry."""
    registry.register(_ClientCollector(client))


class _ClientCollector:
    def __init__(self, client: BookKeeper) -> None:
        self._client = client

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        degraded = self._client.degraded()
        missing_bookies = {bookie for bookies in degraded.values() for bookie in bookies}
        yield GaugeMetricFamily(
            "ledger_degraded_writers", "Ledgers written without some of their bookies", len(degraded)
        )
        yield GaugeMetricFamily("ledger_missing_bookies", "Bookies that such ledgers lack", len(missing_bookies))
        yield CounterMetricFamily(
            "ledger_degraded_total", "How often a writer went on without a bookie", self._client.degraded_total
        )
