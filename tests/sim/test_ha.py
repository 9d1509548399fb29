"""Replication in the simulator, masters and slaves with their stores: a slice of fresh seeds, and that a seed is all a
run depends on."""

from __future__ import annotations

import random

import pytest

from support.repeats import fingerprints
from tallystick.sim import ha, ha_budgets
from tallystick.sim.disk import Crashed
from tallystick.sim.series import Outcome, run_many


@pytest.mark.rule("H2", "H4", "H5", "H6", "H8", "H9", "H10", "H11")
def test_promises_hold_in_fresh_schedules() -> None:
    first = random.randrange(1 << 32)
    print(f"seeds from {first}; one again: tally sim replay SEED --kind replication")
    summary = run_many(ha.run, range(first, first + 120))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert summary.promise_count > 250, "too little is promised to prove anything"


@pytest.mark.parametrize(
    "seed",
    [
        3905642547,  # were lives in which the judge opened a file at a crash,
        3032858861,  # and a file came back from before the log began
        2856864655,  # queues were ahead of the log's sync when the power was lost
        2170662871,
        2170663313,  # a power loss brought back what retention had deleted, and queues began behind it
        1294204859,  # a master lost its first file, and was killed in the start that was to do without it
        5000502,
        7203432,  # the judge held a slave to what it acknowledged with the disk that it then lost
        5001896,  # and waited for bytes where the newest file had none
        2830527733,  # power loss took a master's first file and left the second: its queues began at 0 again
    ],
)
def test_promises_hold_where_they_were_once_broken(seed: int) -> None:
    assert ha.run(seed).violation is None


@pytest.mark.parametrize("what", ha_budgets.BUDGETS)
def test_a_budget_that_is_passed_ends_a_life(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ha_budgets.BUDGETS, what, 0)
    lives = (ha.run(seed).violation or "" for seed in range(20))
    assert any(f"budget: {what}" in life for life in lives)


def test_what_ends_a_series_names_the_seed() -> None:
    def run(seed: int) -> Outcome:
        raise Crashed("operation 7")

    with pytest.raises(Crashed) as crash:
        run_many(run, [12345])
    assert crash.value.__notes__ == ["in the life of seed 12345"]


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("ha", 40)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 40


def test_the_schedules_meet_what_they_should() -> None:
    """Every kind of answer, refusals, and nodes that die, stop and come back: sooner or later."""
    missing = {
        "PUT_OK", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "FLUSH_DISK_TIMEOUT", "logs differ", "lost its end",
        "original=True", "dies power", "proven=True", "acknowledged", "no space left", "put refused",
        "dies kill", "proven=False", "forgotten", "StorageError('simulated", "heard nothing from the master",
    }  # fmt: skip
    for seed in range(400):
        trace = "\n".join(ha.run(seed, keep_trace=True).trace)
        missing = {met for met in missing if met not in trace}
        if not missing:
            break
    assert not missing
