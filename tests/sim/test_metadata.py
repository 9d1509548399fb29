"""The tables of a master and a slave in the simulator: fresh seeds, and that a seed is all a run depends on."""

from __future__ import annotations

import pytest

from tallystick.sim import metadata
from tallystick.sim.series import random_start, run_many


@pytest.mark.rule("H3", "H12", "H13")
def test_promises_hold_in_fresh_schedules() -> None:
    first = random_start()
    print(f"seeds from {first}; one again: tally sim replay SEED --kind metadata")
    summary = run_many(metadata.run, range(first, first + 150))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failed] == []
    assert summary.promised > 1500, "too little is promised to prove anything"


@pytest.mark.rule("H13")
@pytest.mark.parametrize("seed", [1386514621])  # killed before its group was saved: consumers make it by pulls
def test_promises_hold_where_they_were_once_broken(seed: int) -> None:
    assert metadata.run(seed).violation is None


def test_a_seed_gives_the_same_run() -> None:
    prints = [metadata.run(seed).fingerprint for seed in range(20)]
    assert prints == [metadata.run(seed).fingerprint for seed in range(20)]
    assert len(set(prints)) == 20


def test_the_schedules_meet_what_they_should() -> None:
    traces = "\n".join(line for seed in range(30) for line in metadata.run(seed, keep_trace=True).trace)
    for met in (
        "SLAVE commit",
        "ASYNC_MASTER dies True",
        "SLAVE dies False",
        "changed T1 True",
        "asks 31001",
        "stranger",
    ):
        assert met in traces, met
