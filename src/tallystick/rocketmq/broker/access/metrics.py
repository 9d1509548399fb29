"""How many requests access control refused, and which passed that will not when keys are required."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric


@dataclass(slots=True)
class AccessCounts:
    """Requests since the start."""

    refused: int = 0
    unsigned: int = 0  # that passed all the same
    old_secrets: int = 0  # that passed, signed with the older one of two


class AccessCollector:
    """What a scrape shows of them."""

    def __init__(self, counts: AccessCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        counts = self._counts
        for name, text, value in (
            (
                "broker_access_refused_total",
                "Requests not signed rightly, or not allowed to their user",
                counts.refused,
            ),
            ("broker_access_unsigned_total", "Requests without a key that passed all the same", counts.unsigned),
            (
                "broker_access_old_secrets_total",
                "Requests signed with the older one of two secrets",
                counts.old_secrets,
            ),
        ):
            yield CounterMetricFamily(name, text, value)
