"""What a client of bookies shows of itself: as numbers, and in the metrics of the program that it is part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from tallystick.bookkeeper.ledger.counts import BOUNDS_S, Latencies

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from tallystick.bookkeeper.ledger.client import LedgerClient

_Sample = tuple[str, dict[str, str], float]  # the end of its name, its labels, its value


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    text: str
    kind: str  # as Prometheus has it
    samples: list[_Sample]


def numbers(client: LedgerClient) -> dict[str, float]:
    """Return all samples by their names, with the label where there is one: ``…_total{code="FENCED"}``."""
    numbers_by_name: dict[str, float] = {}
    for family in _families(client):
        for end, labels, value in family.samples:
            label = "".join(f'{{{name}="{text}"}}' for name, text in labels.items())
            numbers_by_name[f"{family.name}{end}{label}"] = value
    return numbers_by_name


def register(client: LedgerClient, registry: CollectorRegistry) -> None:
    """Add the client's metrics, which begin with ``ledger_``. One client a registry."""
    registry.register(_ClientCollector(client))


class _ClientCollector:
    def __init__(self, client: LedgerClient) -> None:
        self._client = client

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import Metric

        for family in _families(self._client):
            metric = Metric(family.name, family.text, family.kind)
            for end, labels, value in family.samples:
                metric.add_sample(family.name + end, labels, value)
            yield metric


def _families(client: LedgerClient) -> Iterator[_Family]:
    degraded = client.degraded()
    missing_bookies = {bookie for bookies in degraded.values() for bookie in bookies}
    yield _gauge("ledger_degraded_writers", "Ledgers written without some of their bookies", len(degraded))
    yield _gauge("ledger_missing_bookies", "Bookies that such ledgers lack", len(missing_bookies))
    yield _counter("ledger_degraded", "How often a writer went on without a bookie", client.degraded_total)
    counts = client.context.bookies.counts
    yield _counter("ledger_adds", "Entries confirmed", counts.adds)
    yield _counter("ledger_add_bytes", "Bytes of their payloads", counts.add_bytes)
    yield _histogram("ledger_add_seconds", "From sending an entry to confirming it", counts.add_latencies)
    yield _by_code("ledger_add_errors", "Entries that a bookie refused, or did not answer", counts.add_errors)
    yield _counter("ledger_reads", "Entries read", counts.reads)
    yield _counter("ledger_read_bytes", "Bytes of their payloads", counts.read_bytes)
    yield _histogram("ledger_read_seconds", "From asking for a piece of a read to having it", counts.read_latencies)
    yield _by_code("ledger_read_errors", "Pieces of which a bookie gave nothing", counts.read_errors)
    yield _counter("ledger_speculative_reads", "Reads for which another bookie was asked too", counts.speculative_reads)
    yield _counter("ledger_ensemble_changes", "Ensembles changed by a writer", counts.ensemble_changes)
    yield _counter(
        "ledger_slow_bookies", "How often adds to a bookie took far longer than to others", counts.slow_bookies
    )
    yield _counter("ledger_reconnects", "Connections to a bookie after the first", counts.reconnects)


def _gauge(name: str, text: str, value: float) -> _Family:
    return _Family(name, text, "gauge", [("", {}, value)])


def _counter(name: str, text: str, value: float) -> _Family:
    return _Family(name, text, "counter", [("_total", {}, value)])


def _by_code(name: str, text: str, errors: Mapping[str, int]) -> _Family:
    return _Family(name, text, "counter", [("_total", {"code": code}, errors[code]) for code in sorted(errors)])


def _histogram(name: str, text: str, latencies: Latencies) -> _Family:
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    buckets: list[_Sample] = [
        ("_bucket", {"le": bound}, count) for bound, count in zip(bounds, accumulate(latencies.by_bound), strict=True)
    ]
    ends: list[_Sample] = [("_count", {}, latencies.count), ("_sum", {}, latencies.seconds)]
    return _Family(name, text, "histogram", [*buckets, *ends])
