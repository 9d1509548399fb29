from __future__ import annotations

from typing import Any

import pytest
import report
from ledger_report import REFERENCE, markdown
from report import OURS, Round
from turns import Failure


def a_round(
    side: str = OURS, load: str = "add", rate: float = 1000.0, total: float = 10.0, others: float = 0.0
) -> Round:
    return Round(load, side, rate, 1.5, 9.5, {"client": total / 2, "bookie": total / 6}, total, others)


def results_of(*rounds: Round, **changes: Any) -> dict[str, Any]:
    processes = {side: {"client": 30.0, "bookie": 40.0} for side in (OURS, REFERENCE)}
    machine = {"cores": 2, "cpu": "Chip", "python": "3.11"}
    machine |= {"fdatasync_4k_growing_p50_us": 400, "fdatasync_4k_rewritten_p50_us": 300}
    return {
        "machine": machine,
        "seconds": 61.2,
        "skipped_rounds": 0,
        "failures": [],
        "left_out": [],
        "start_seconds": {OURS: [0.3, 0.4], REFERENCE: [1.0]},
        "restarts": {OURS: {"seconds": 0.5, "entries": 2_500_000}},
        "resident_mb": {"rest": processes, "loaded": processes},
        "rounds": list(rounds),
        **changes,
    }


def row_of(text: str, side: str) -> list[str]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return next(cells for cells in rows if cells[1:2] == [side])


def test_ratios_are_of_the_medians_and_stand_beside_every_side_but_the_reference() -> None:
    rounds = [a_round(rate=rate, total=total) for rate, total in ((1000, 12), (3000, 10), (9000, 11))]
    rounds += [a_round(REFERENCE, rate=rate, total=22) for rate in (1500, 1400, 9999)]
    text = markdown(results_of(*rounds))
    assert row_of(text, f"**{OURS}**") == [
        "add", f"**{OURS}**", "3,000 (1.0 3.0 9.0)", "1.50 / 9.50", "5.50 + 1.83 = 11.00", "2.00", "0.50",
    ]  # fmt: skip
    assert row_of(text, REFERENCE)[-2:] == ["", ""]


def test_without_a_reference_there_is_no_ratio() -> None:
    assert row_of(markdown(results_of(a_round())), f"**{OURS}**")[-2:] == ["", ""]


def test_disturbed_rounds_are_left_out_where_two_quiet_ones_remain() -> None:
    rounds = [a_round(rate=100, others=0.0), a_round(rate=200, others=0.1), a_round(rate=9000, others=1.5)]
    assert report.median(rounds, lambda one: one.rate) == 150
    assert report.median(rounds[1:], lambda one: one.rate) == 4600
    assert "(0.1 0.2 9.0)" in markdown(results_of(*rounds)), "the table lists all rounds"


def test_a_busy_machine_and_skipped_rounds_are_said() -> None:
    text = markdown(results_of(a_round(others=0.8), a_round(others=0.9), skipped_rounds=3))
    assert "2 rounds in 61 s, 3 skipped for lack of time." in text
    assert "Others used 0.9 cores in the median round" in text
    assert "Others used" not in markdown(results_of(a_round()))


def test_a_side_that_failed_is_named_and_the_others_are_shown() -> None:
    failures = [Failure(REFERENCE, "warming", "RuntimeError: ended with 1")] * 3
    failures += [Failure(OURS, "add", "TimeoutError: "), Failure(REFERENCE, "add", "OSError: gone")]
    text = markdown(results_of(a_round(), failures=failures, left_out=[REFERENCE]))
    assert f"**{REFERENCE} failed** 4 times; was left out from then on: warming: RuntimeError: ended with 1" in text
    assert f"**{OURS} failed** 1 times; those turns have no figures: add: TimeoutError: " in text
    assert row_of(text, f"**{OURS}**")[2] == "1,000 (1.0, 1 failed)"
    assert row_of(text, REFERENCE)[2:] == ["all 1 failed", "-", "-", "-", "-"]


def test_processes_have_their_start_restart_and_memory() -> None:
    text = markdown(results_of(a_round()))
    assert f"| **{OURS}** | 0.30 0.40 | 0.50 (2.50 M) | 40; 30 | 40; 30 |" in text
    assert f"| {REFERENCE} | 1.00 | - | 40; 30 | 40; 30 |" in text


def test_the_table_of_the_docs_is_replaced_and_nothing_else() -> None:
    begin, end = "<!-- here: begin -->", "<!-- here: end -->"
    text = f"before\n{begin}\nold\n{end}\nafter\n"
    once = report.replace_table(text, "new | table", "here")
    assert once == f"before\n{begin}\nnew | table\n{end}\nafter\n"
    assert report.replace_table(once, "new | table", "here") == once
    for broken in ("no marks", f"{begin} only", f"{end} only"):
        with pytest.raises(ValueError, match="no <!-- here: begin"):
            report.replace_table(broken, "new", "here")
