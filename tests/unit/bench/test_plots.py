"""What the plots of goals draw."""

from __future__ import annotations

import sys
from pathlib import Path

import figures
import plots
import pytest
from figures import Figures
from goals import BROKER, GOALS, LEDGER, ORIGINALS, Goal
from report import OURS, PYTHON

BEST = ORIGINALS[LEDGER]


def a_run(load: str = "add") -> Figures:
    values = {OURS: (3000.0, 5.0), PYTHON: (1500.0, 8.0), BEST: (1000.0, 10.0)}
    return Figures({(LEDGER, load, side): {"rate": rate, "total_us": cpu} for side, (rate, cpu) in values.items()})


@pytest.mark.parametrize(
    ("goal", "side", "ahead"),
    [
        (Goal(LEDGER, "add", "rate", 6, 2.5, more=True), OURS, (3, 6)),
        (Goal(LEDGER, "add", "rate", 6, 2.5, more=True), PYTHON, (1.5, 2.5)),
        (Goal(LEDGER, "add", "total_us", 0.25, 0.5), OURS, (2, 4)),
        (Goal(LEDGER, "none", "rate", 6, 2.5, more=True), OURS, None),
    ],
)
def test_times_ahead(goal: Goal, side: str, ahead: tuple[float, float] | None) -> None:
    assert plots.times_ahead(goal, a_run(), side, goal.compiled if side == OURS else goal.python) == ahead


def test_each_benchmark_beside_an_original_is_drawn_and_always_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = next(goal.load for goal in GOALS if goal.bench == LEDGER and goal.figure == "rate")
    figures.write(a_run(load), tmp_path / "kept.json")
    words = ["x", "--kept", str(tmp_path / "kept.json"), "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    drawn = set()
    for _ in range(2):
        assert plots.main() == 0
        drawn.add((tmp_path / "ledger.svg").read_bytes())
    assert len(drawn) == 1 and load.encode() in drawn.pop()
    assert f"{BROKER}: nothing of it was measured" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*words[:2], str(tmp_path / "no.json"), *words[3:]])
    assert plots.main() == 1
