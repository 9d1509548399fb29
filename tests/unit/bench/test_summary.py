"""Goals beside figures, and a run beside the one that is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import figures
import pytest
import summary
from figures import SPARK, Figures
from goals import BROKER, GOALS, LEDGER, ORIGINALS, Goal
from report import OURS, PYTHON

BEST = ORIGINALS[LEDGER]
MACHINE = {"cpu": "Chip", "cores": 2, "python": "3.11", "codec": "compiled, CRC32C by SSE 4.2"}


def a_round(side: str, load: str = "add", rate: float = 1000.0, total: float = 10.0, others: float = 0.0) -> Any:
    return {
        "load": load, "side": side, "rate": rate, "p50_ms": 1.5, "p99_ms": 9.5,
        "cpu_us": {"client": total / 2, "bookie": total / 6}, "total_us": total, "others_cores": others,
    }  # fmt: skip


def a_report(*rounds: Any, codec: str = "compiled", **rest: Any) -> dict[str, Any]:
    return {"machine": {**MACHINE, "codec": codec}, "rounds": list(rounds), **rest}


def run_of(*rounds: Any, **how: Any) -> Figures:
    run = Figures()
    run.add(LEDGER, a_report(*rounds, **how))
    return run


def test_figures_are_medians_of_quiet_rounds_and_of_memory() -> None:
    rounds = [a_round(OURS, rate=rate, others=others) for rate, others in ((1, 0.0), (3, 0.1), (900, 2.0))]
    run = run_of(*rounds, resident_mb={"rest": {OURS: {"bookie": 50.0}}, "loaded": {OURS: {"bookie": 140.0}}})
    assert run.get(LEDGER, "add", OURS, "rate") == 2
    assert run.get(LEDGER, "add", OURS, "client_us") == 5
    assert run.get(LEDGER, figures.MEMORY, OURS, "bookie_loaded_mb") == 140
    assert run.get(LEDGER, "add", OURS, "nothing") is run.get(LEDGER, "add", "nobody", "rate") is None


def test_ours_without_the_compiled_codec_is_the_one_in_pure_python() -> None:
    run = run_of(a_round(OURS), a_round(BEST), codec="python")
    assert {side for _, _, side in run.values} == {PYTHON, BEST}


def test_a_run_of_spark_in_pure_python_stands_beside_the_compiled_one(tmp_path: Path) -> None:
    one = [{"rows_per_s": 5.0, "cpu_s_per_gb": cpu, "servers_cpu_s_per_gb": 1.0} for cpu in (1.0, 2.0, 9.0)]
    for name, codec in (("spark", "compiled"), ("spark-python", "python")):
        report = {"machine": {**MACHINE, "codec": codec}, "rounds": {"ledger": one}}
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    (tmp_path / "other.json").write_text('{"no": "rounds"}')
    run = figures.of_folder(tmp_path)
    assert [run.get(SPARK, "ledger", side, "cpu_s_per_gb") for side in (OURS, PYTHON)] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("goal", "side", "ratio", "is_met"),
    [
        (Goal(LEDGER, "add", "rate", 1.5, 1, more=True), OURS, 2.0, True),
        (Goal(LEDGER, "add", "rate", 2.5, 1, more=True), OURS, 2.0, False),
        (Goal(LEDGER, "add", "total_us", 0.5, 1), OURS, 0.5, True),
        (Goal(LEDGER, "add", "total_us", 0.4, 1), OURS, 0.5, False),
        (Goal(LEDGER, "add", "total_us", 0.4, 1), PYTHON, None, None),
        (Goal(LEDGER, "add", "total_us", 10, 1, is_absolute=True), OURS, 10.0, True),
        (Goal(LEDGER, "add", "total_us", 1, 1, beside="few"), OURS, 0.25, True),
        (Goal(LEDGER, "absent", "rate", 1, 1, more=True), OURS, None, None),
    ],
)
def test_a_goal_is_met_or_not_or_nobody_knows(goal: Goal, side: str, ratio: float | None, is_met: bool | None) -> None:
    run = run_of(a_round(OURS), a_round(BEST, rate=500, total=20), a_round(OURS, "few", total=40))
    one = summary.verdict(goal, run, side, goal.compiled)
    assert (one.ratio, one.is_met) == (ratio, is_met)


def test_every_goal_has_a_row_whatever_was_measured() -> None:
    lines = [line for line in summary.table(Figures()).splitlines() if line.startswith("| ")]
    assert len(lines) == len(GOALS) + 1
    assert len({line.split("|")[1] for line in lines}) == len(lines), "no two rows have one name"
    assert all("?" in line.split("|")[7] for line in lines[1:])
    load = GOALS[0].load
    run = run_of(a_round(OURS, load, total=1), a_round(PYTHON, load, total=6), a_round(BEST, load, total=10))
    row = summary.table(run).splitlines()[2].split("|")
    assert [cell.strip() for cell in row[2:8]] == ["1", "6", "10", "0.1 · 0.6", "≤ 0.143 · ≤ 0.48", "yes · **no**"]


def test_goals_are_of_loads_that_there_are() -> None:
    assert {goal.bench for goal in GOALS} == {LEDGER, BROKER, "starts", SPARK}
    assert all(goal.compiled > 0 and goal.python > 0 for goal in GOALS)


def test_what_got_more_than_a_tenth_worse_is_named_with_the_original() -> None:
    before = run_of(a_round(OURS, total=10, rate=1000), a_round(BEST, total=20, rate=500))
    now = run_of(a_round(OURS, total=11.5, rate=950), a_round(BEST, total=30, rate=700))
    rows = {row[3]: row for row in summary.worse(now, before)}
    assert set(rows) == {"total_us", "client_us", "bookie_us"}, "5 % less is no more than a tenth"
    assert rows["total_us"] == [LEDGER, "add", OURS, "total_us", "10", "11.5", "1.15", "1.5"]
    rate = summary.worse(run_of(a_round(OURS, rate=800)), run_of(a_round(OURS, rate=1000)))
    assert [row[3:] for row in rate] == [["rate", "1,000", "800", "1.25", "-"]]


def test_a_run_is_kept_compared_with_and_never_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    kept = tmp_path / "kept" / "figures.json"

    def run(total: float, *words: str, cpu: str = "Chip") -> str:
        report = a_report(a_round(OURS, total=total))
        report["machine"]["cpu"] = cpu
        (tmp_path / "out" / "ledger.json").write_text(json.dumps(report))
        monkeypatch.setattr(sys, "argv", ["x", "--out", str(tmp_path / "out"), "--kept", str(kept), *words])
        assert summary.main() == 0
        return capsys.readouterr().out

    assert "No run is kept" in run(10)
    run(10, "--keep")
    assert figures.read(kept).get(LEDGER, "add", OURS, "total_us") == 10
    assert "Nothing got more than 10 % worse" in run(10.5)
    text = run(20, cpu="Slow")
    assert "Another machine: cpu is Slow, and was Chip." in text and f"| ledger | add | {OURS} | total_us |" in text


def test_without_a_report_nothing_is_kept_and_the_docs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As behind ``make bench KEEP=1`` on a machine without Java."""
    docs, kept = tmp_path / "page.md", tmp_path / "figures.json"
    for file in (docs, kept):
        file.write_text("<!-- goals: begin -->\nold\n<!-- goals: end -->\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "stream.json").write_text(json.dumps(a_report(a_round(OURS))))  # it has none
    words = ["--out", str(tmp_path / "out"), "--kept", str(kept), "--keep", "--docs", str(docs)]
    monkeypatch.setattr(sys, "argv", ["x", *words])
    assert summary.main() == 1
    assert "has no report of what has a goal: nothing is kept" in capsys.readouterr().err
    assert docs.read_text() == kept.read_text() == "<!-- goals: begin -->\nold\n<!-- goals: end -->\n"


def test_the_table_of_goals_goes_into_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "page.md"
    docs.write_text("before\n<!-- goals: begin -->\nold\n<!-- goals: end -->\nafter\n")
    (tmp_path / "ledger.json").write_text(json.dumps(a_report(a_round(OURS))))
    monkeypatch.setattr(sys, "argv", ["x", "--out", str(tmp_path), "--kept", str(tmp_path / "no"), "--docs", str(docs)])
    assert summary.main() == 0
    text = docs.read_text()
    assert "cpu Chip, cores 2, python 3.11, codec compiled" in text and "old" not in text
    assert text.startswith("before\n") and text.endswith("<!-- goals: end -->\nafter\n")
    assert summary.table(figures.of_folder(tmp_path)) in text


@pytest.mark.parametrize(
    "script", ["summary", "plots", "ledger", "broker", "starts", "spark", "peers", "growth", "sinks", "triggers"]
)
def test_each_script_starts_by_itself(script: str) -> None:
    """As make runs it: the tests' own path is not there."""
    file = Path(summary.__file__).with_name(f"{script}.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, file, "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
