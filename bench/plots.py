"""Draws the goals of a run that is kept: how far ahead of an original each row is, with either codec.

    python bench/plots.py [--kept FILE] [--folder FOLDER]

An SVG for each benchmark that runs beside an original, the same bytes for the same figures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import figures
import matplotlib as mpl
from figures import Figures
from goals import GOALS, ORIGINALS, Goal
from report import OURS, PYTHON
from summary import KEPT, verdict

mpl.use("svg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "plots"
COLORS = {OURS: "#20639b", PYTHON: "#9fc5e0"}
NAMES = {OURS: "compiled codec", PYTHON: "pure Python"}
ROW_INCHES, BAR = 0.42, 0.36


def times_ahead(goal: Goal, run: Figures, side: str, bound: float) -> tuple[float, float] | None:
    """Returns how many times better than the original's a figure is, and how many times better it is to be; None where
    one of both figures is missing."""
    one = verdict(goal, run, side, bound)
    if not one.ratio:
        return None
    return (one.ratio, bound) if goal.more else (1 / one.ratio, 1 / bound)


def draw(bench: str, run: Figures, file: Path) -> bool:
    """Draw the rows of one benchmark. Returns whether there was any."""
    rows = [goal for goal in GOALS if goal.bench == bench and not goal.is_absolute and not goal.beside]
    rows = [goal for goal in rows if any(times_ahead(goal, run, side, 1) for side in COLORS)]
    if not rows:
        return False
    with plt.rc_context({"svg.hashsalt": bench, "font.size": 8, "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(9, 1 + ROW_INCHES * len(rows)), layout="constrained")
        for number, goal in enumerate(rows):
            for offset, side, bound in ((-BAR / 2, OURS, goal.compiled), (BAR / 2, PYTHON, goal.python)):
                if (ahead := times_ahead(goal, run, side, bound)) is not None:
                    axes.barh(number + offset, ahead[0] - 1, BAR, left=1, color=COLORS[side])
                    axes.plot(
                        [ahead[1]] * 2, [number + offset - BAR / 2, number + offset + BAR / 2], color="black", lw=1
                    )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_yticks(range(len(rows)), [goal.title for goal in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(left=min(0.9, axes.get_xlim()[0]))
        axes.axvline(1, color="#c0392b", lw=1.2)
        axes.grid(axis="x", color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"times ahead of: {ORIGINALS[bench]} (red: level with it; black: the goal)")
        for side, color in COLORS.items():
            axes.barh(0, 0, left=1, color=color, label=NAMES[side])
        figure.legend(loc="outside upper right", ncols=len(COLORS), frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kept", type=Path, default=KEPT, help="the run to draw")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the SVGs go (docs/plots)")
    arguments = parser.parse_args()
    if not arguments.kept.exists():
        print(f"No run is kept in {arguments.kept}: make bench KEEP=1 keeps one.", file=sys.stderr)
        return 1
    run = figures.read(arguments.kept)
    for bench in ORIGINALS:
        file = arguments.folder / f"{bench}.svg"
        print(file if draw(bench, run, file) else f"{bench}: nothing of it was measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
