"""What a client counts."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.counts import BOUNDS_S, ClientCounts, Latencies
from tallystick.bookkeeper.wire.codes import Code


def test_latencies_are_counted_by_the_least_bound_that_they_keep() -> None:
    latencies = Latencies()
    for seconds, count in ((0.0, 1), (0.001, 2), (0.0011, 3), (5.0, 4), (60.0, 5)):
        latencies.took(seconds, count)
    assert latencies.by_bound == [3, 3, *[0] * (len(BOUNDS_S) - 3), 4, 5]
    assert latencies.count == sum(latencies.by_bound) == 15
    assert round(latencies.seconds, 4) == round(0.002 + 0.0033 + 20 + 300, 4)


def test_errors_have_the_names_of_codes() -> None:
    counts = ClientCounts()
    counts.add_failed(Code.IO_ERROR, 3)
    counts.add_failed(None, 2)
    counts.add_failed(None, 1)
    assert dict(counts.add_errors) == {"IO_ERROR": 3, "NO_RESPONSE": 3}
