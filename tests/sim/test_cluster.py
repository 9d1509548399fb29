"""Whole clients and bookies in the simulator: a slice of fresh seeds, and that a seed is all a run depends on."""

from __future__ import annotations

import random

import pytest

from support.fresh_seeds import fresh_seeds
from support.repeats import fingerprints
from tallystick.sim import cluster, cluster_budgets, series

# Without these the promises prove little; each is in a sixth of the lives or more, the last two in a tenth.
MET = (
    "bookie not believed", "ensemble changed", "ledger degraded", "ledgers deleted", "recovery began", "adds refused",
    "writer stopped", "strikes", "damaged", "forced", "LAC told", "deferred sync",
    "bookie rejoins", "limbo ended",
)  # fmt: skip


@pytest.mark.rule("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9")
def test_promises_hold_in_fresh_schedules() -> None:
    first, met = random.randrange(1 << 32), set[str]()

    def run(seed: int) -> series.Outcome:
        outcome = cluster.run(seed, keep_trace=True)
        met.update(word for word in MET if any(word in line for line in outcome.trace))
        return outcome

    print(f"seeds from {first}; one again: tally sim replay SEED")
    summary = series.run_many(run, fresh_seeds(first, 100, met, MET))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert summary.lives >= 100
    assert summary.promise_count > 120, "the schedules acknowledge too little to prove anything"
    assert met == set(MET), "the schedules miss what they are for"


@pytest.mark.rule("P9")
def test_a_ledger_whose_id_a_sleeping_bookie_knows_is_recovered() -> None:
    """The bookie woke in the new ledger's ensemble and refused its password for ever."""
    assert cluster.run(2044016821).violation is None


@pytest.mark.rule("P6")
def test_a_recovery_that_another_one_overtook_says_nothing_of_the_ledger_that_is_closed() -> None:
    """It was late with its fences, of bookies that the other one had replaced."""
    assert cluster.run(15).violation is None


@pytest.mark.rule("P1")
def test_what_a_bookie_took_after_its_disk_had_rotted_is_lost_with_it() -> None:
    """It took an entry, and did not start any more: an older index file was damaged. The judge counted on the entry."""
    assert cluster.run(2658247865).violation is None


def test_who_recovers_a_ledger_may_find_that_its_id_is_another_ones_meanwhile() -> None:
    """With another password: the program, which looked before it tried again, ended with the refusal."""
    assert cluster.run(394973434).violation is None


@pytest.mark.rule("P5")
def test_a_ledger_that_a_loss_of_power_brings_back_was_not_said_to_be_gone() -> None:
    """Its id was given away, and a reader of the new ledger got the old one's entry."""
    assert cluster.run(2544373518).violation is None


@pytest.mark.rule("P2", "P6")
@pytest.mark.parametrize("seed", [1617322234, 1617322552])
def test_a_bookie_whose_id_changes_hands_says_no_more_than_it_keeps(seed: int) -> None:
    """It told a recovery "no such ledger" of a new ledger with the id of a deleted one while it could not look, which
    fences nothing; and it wiped out a fence, as the id's old ledger had its turn to go only then."""
    assert cluster.run(seed).violation is None


def test_a_program_hears_that_its_writer_has_ended() -> None:
    """An append failed for want of an ack quorum, the next was refused, and the judge did not know that error."""
    assert cluster.run(2838792265).violation is None


@pytest.mark.rule("P9")
def test_a_bookie_that_closed_both_connections_is_asked_for_its_lac_once() -> None:
    """A request of version 2 that failed at once was sent again in the same moment, for ever."""
    assert cluster.run(1314).violation is None


@pytest.mark.rule("P4")
def test_a_force_may_cover_entries_of_a_batch_whose_caller_waits_for_the_rest() -> None:
    """The judge knew only of callers that had been told."""
    assert cluster.run(3909024927).violation is None


@pytest.mark.rule("P9")
def test_an_id_that_a_bookie_may_hold_which_starts_no_more_is_given_up() -> None:
    """Its disk had rotted, and the writer waited for it without an end."""
    assert cluster.run(3724054063).violation is None


def test_the_lac_of_a_deleted_ledger_is_not_that_of_the_next_one_with_its_id() -> None:
    """The judge missed the answer to a long poll of the new one."""
    assert cluster.run(1337666552).violation is None


def test_a_budget_that_is_passed_ends_a_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cluster_budgets.BUDGETS, "open files of a bookie", 0)
    assert "budget: open files of a bookie" in (cluster.run(1).violation or "")


@pytest.mark.rule("P9")
def test_who_follows_a_ledger_that_a_recovery_left_unfinished_waits_for_the_next_one() -> None:
    """The judge wanted the last entry of its writer, who was fenced when it had one acknowledgement of one."""
    assert cluster.run(5000656).violation is None


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("cluster", 15)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 15, "different seeds give different runs"


def test_a_kept_trace_changes_nothing() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    kept = cluster.run(seed, keep_trace=True)
    assert kept.fingerprint == cluster.run(seed).fingerprint
    assert kept.trace
    # A writer may be killed before it has made its ledger: not each life has one.
    lines = [line for life in range(5) for line in cluster.run(life, keep_trace=True).trace]
    assert any("ledger created" in line for line in lines)
