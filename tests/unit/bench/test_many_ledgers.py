from __future__ import annotations

import math

import many_ledgers
from many_ledgers import FULL, BookieLoss, Latencies, Planned


def test_the_table_has_both_tasks_on_each_metadata_service() -> None:
    loss = BookieLoss("SQLite", Latencies(1.4, 20, 30), Latencies(2.4, 800, 900), 0, {}, 41.6, 30.2, 24.04, 9.87, 7.1)
    machine = {"cores": 2, "cpu": "a processor", "python": "3.11"}
    results = {"machine": machine, "size": FULL, "lost": [loss], "planned": [Planned("SQLite", 100_000, 1.52, 1.66)]}
    table = many_ledgers.markdown(results)
    assert "| SQLite | 1 / 2 ms | 20 / 800 ms | 900 ms | 0 | 42 ms | 30 ms | 24 | 9.9 s | 7.1 |" in table
    assert "| SQLite | 100,000 | 1.5 s | 1.7 s |" in table


def test_latencies_are_those_of_the_slowest_too() -> None:
    results = Latencies.of([number / 1000 for number in range(1, 1001)])
    assert (results.p50_ms, results.p99_ms, results.max_ms) == (501.0, 991.0, 1000.0)


def test_a_run_in_which_nothing_was_answered_after_the_loss_has_a_report() -> None:
    none = Latencies.of([])
    assert none == Latencies(math.inf, math.inf, math.inf)
    loss = BookieLoss("SQLite", Latencies.of([0.001]), none, 0, {"no answer": 9}, 1, 1, 1, 1, 9)
    machine = {"cores": 2, "cpu": "a processor", "python": "3.11"}
    table = many_ledgers.markdown({"machine": machine, "size": FULL, "lost": [loss], "planned": []})
    assert "| SQLite | 1 / inf ms | 1 / inf ms | inf ms |" in table
