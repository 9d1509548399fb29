"""What a run came to: each goal beside its figures, and what got worse than in the run that is kept.

    python bench/summary.py [--out FOLDER] [--kept FILE] [--keep] [--docs FILE]

Reads the reports that the benchmarks left as JSON. What is missing is said, and what got worse fails nothing; without
a report of what has a goal it ends with 1, and leaves the run that is kept and the page as they are.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import figures
from figures import Figures
from goals import GOALS, ORIGINALS, Goal
from report import OURS, PYTHON, grid, replace_table

ROOT = Path(__file__).resolve().parent
KEPT = ROOT / "baseline" / "figures.json"
WORSE = 1.10  # times as much as before
TITLES = ("row", "ours, compiled", "ours, pure Python", "original", "ratio", "goal", "met")


@dataclass(frozen=True)
class Verdict:
    """What became of a goal with one codec. ``ratio`` is None without a figure, or without what it is set beside."""

    figure: float | None
    ratio: float | None
    bound: float
    more: bool

    @property
    def is_met(self) -> bool | None:
        if self.ratio is None:
            return None
        return self.ratio >= self.bound if self.more else self.ratio <= self.bound


def verdict(goal: Goal, run: Figures, side: str, bound: float) -> Verdict:
    figure = run.get(goal.bench, goal.load, side, goal.figure)
    if goal.is_absolute or figure is None:
        return Verdict(figure, figure, bound, goal.more)
    if goal.beside:
        other = run.get(goal.bench, goal.beside, side, goal.figure)
    else:
        other = run.get(goal.bench, goal.load, ORIGINALS[goal.bench], goal.figure)
    return Verdict(figure, figure / other if other else None, bound, goal.more)


def table(run: Figures) -> str:
    """All goals. Of two values in a cell the first is with the compiled codec, the second in pure Python."""
    rows = []
    for goal in GOALS:
        verdicts = [verdict(goal, run, OURS, goal.compiled), verdict(goal, run, PYTHON, goal.python)]
        original = None if goal.bench not in ORIGINALS else _original(goal, run)
        sign = "≥" if goal.more else "≤"
        rows.append(
            [
                goal.title + (f", beside {goal.beside}" if goal.beside else ""),
                *(_number(None if one.figure is None else one.figure * goal.scale) for one in verdicts),
                _number(None if original is None else original * goal.scale),
                "-" if goal.is_absolute else " · ".join(_number(one.ratio) for one in verdicts),
                " · ".join(f"{sign} {_number(one.bound)}" for one in verdicts),
                " · ".join({None: "?", True: "yes", False: "**no**"}[one.is_met] for one in verdicts),
            ]
        )
    met = [verdict(goal, run, side, 0) for goal in GOALS for side in (OURS, PYTHON)]
    missing = sum(one.ratio is None for one in met)
    note = f"\n\n{missing} of {len(met)} figures were not measured: their goals are marked with ?." if missing else ""
    return grid(TITLES, rows) + note


def _about(run: Figures) -> str:
    day, machine = datetime.now(UTC).strftime("%Y-%m-%d"), run.machine
    about = ", ".join(f"{what} {machine[what]}" for what in ("cpu", "cores", "python", "codec") if what in machine)
    return f"`make bench KEEP=1`, {day}: {about}."


def _original(goal: Goal, run: Figures) -> float | None:
    return run.get(goal.bench, goal.load, ORIGINALS[goal.bench], goal.figure)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def worse(run: Figures, before: Figures) -> list[list[str]]:
    """The figures of ours that got worse by more than a tenth, with what the original's did meanwhile."""
    rows = []
    for (bench, load, side), values in sorted(run.values.items()):
        if side not in (OURS, PYTHON):
            continue
        for name, value in values.items():
            change = _change(name, value, before.get(bench, load, side, name))
            if change is None or change <= WORSE:
                continue
            theirs = ORIGINALS.get(bench, "")
            now = run.get(bench, load, theirs, name)
            meanwhile = None if now is None else _change(name, now, before.get(bench, load, theirs, name))
            old = before.get(bench, load, side, name)
            rows.append([bench, load, side, name, _number(old), _number(value), f"{change:.2f}", _number(meanwhile)])
    return rows


def _change(name: str, now: float, before: float | None) -> float | None:
    """How many times worse: of a rate less is worse, of all else more."""
    if not now or not before:
        return None
    return before / now if name == "rate" else now / before


def comparison(run: Figures, before: Figures) -> str:
    lines = []
    for what in ("cpu", "cores", "python", "codec"):
        if (now := run.machine.get(what)) != (then := before.machine.get(what)):
            lines.append(f"Another machine: {what} is {now}, and was {then}.")
    rows = worse(run, before)
    if not rows:
        return "\n".join([*lines, "Nothing got more than 10 % worse than in the run that is kept."])
    titles = ("bench", "load", "side", "figure", "before", "now", "times worse", "the original meanwhile")
    return "\n".join([*lines, "More than 10 % worse than in the run that is kept:", "", grid(titles, rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the reports are (out)")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the run to compare with")
    parser.add_argument("--keep", action="store_true", help="keep this run: it is what later ones are compared with")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="replace the table in this Markdown file")
    arguments = parser.parse_args()
    docs: Path | None = arguments.docs
    run = figures.of_folder(arguments.out)
    if not {bench for bench, _, _ in run.values} & {goal.bench for goal in GOALS}:
        print(f"{parser.prog}: {arguments.out} has no report of what has a goal: nothing is kept", file=sys.stderr)
        return 1
    goals = table(run)
    if docs:
        docs.write_text(replace_table(docs.read_text(), f"{_about(run)}\n\n{goals}", "goals"))
    print(goals)
    print()
    if arguments.kept.exists():
        print(comparison(run, figures.read(arguments.kept)))
    else:
        print(f"No run is kept in {arguments.kept} to compare with: --keep keeps this one.")
    if arguments.keep:
        figures.write(run, arguments.kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
