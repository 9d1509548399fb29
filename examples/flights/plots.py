"""The page's plots, as SVG: rates and lag over time with the faults marked, and delays by carrier and hour."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Sequence

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.flights.results import lag
from examples.flights.story import Moment, Run

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, ACCENT, SECOND, FAULT = "#24292f", "#2f6f4f", "#2f5f8f", "#b3402a"
BUCKET_S = 0.25
THOUSANDS = matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}")


def _svg(figure: Figure, label: str) -> str:
    """``label`` is for who cannot see it."""
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight")
    plt.close(figure)
    text = out.getvalue()
    return f'<svg role="img" aria-label="{html.escape(label)}"{text[text.index("<svg") + 4 :]}'


def _acknowledged(run: Run, start: float) -> tuple[list[float], list[float]]:
    """Rows a second over time, as steps of a bucket."""
    buckets: Counter[int] = Counter()
    for each in run.acked:
        buckets[int((each.time - start) / BUCKET_S)] += each.count
    x = range(max(buckets, default=0) + 2)
    return [i * BUCKET_S for i in x], [buckets[i] / BUCKET_S for i in x]


def _visible(run: Run, start: float) -> tuple[list[float], list[float]]:
    """The same for the query's result: the rows of a commit have come in the time since the one before it."""
    x, y = [0.0], [0.0]
    for commit in sorted(run.commits):
        x.append(max(commit.time - start, x[-1] + 0.01))
        y.append(commit.rows / (x[-1] - x[-2]))
    return x, y


def over_time(run: Run) -> str:
    """Rows acknowledged, and rows of the query's result, a second; and below how far the query is behind."""
    start = min(moment.time for moment in run.moments)
    figure, (rates, behind) = plt.subplots(
        2, figsize=(11, 5.4), sharex=True, height_ratios=(3, 2), gridspec_kw={"hspace": 0.12}
    )
    acked, visible = _acknowledged(run, start), _visible(run, start)
    rates.fill_between(*acked, step="post", color=ACCENT, alpha=0.45, linewidth=0, label="acknowledged")
    rates.step(*visible, where="pre", color=SECOND, linewidth=1.6, label="visible in the query's result")
    end = max(acked[0][-1], visible[0][-1], *(moment.time - start for moment in run.moments))
    times = np.arange(0.0, end, 0.1)
    rows = lag(run.acked, run.commits, (times + start).tolist())
    behind.fill_between(times, rows, step="post", color=SECOND, alpha=0.35, linewidth=0)
    _mark(run.moments, start, end, rates, behind)
    for axes in (rates, behind):
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(THOUSANDS)
        axes.spines[["top", "right"]].set_visible(False)
    rates.set(ylabel="rows / s", xlim=(0, end * 1.01))
    behind.set(xlabel="seconds", ylabel="rows behind")
    names = rates.get_legend_handles_labels()
    figure.legend(*names, loc="lower center", ncols=2, frameon=False, bbox_to_anchor=(0.5, -0.06))
    figure.align_ylabels()
    return _svg(
        figure,
        "Rows acknowledged a second over time, rows that came into the query's result, and how many it was behind; the "
        "numbered lines are the moments of the list below it",
    )


def _mark(moments: Sequence[Moment], start: float, end: float, top: Axes, bottom: Axes) -> None:
    """A line for each moment, with its number above the upper plot."""
    levels = _levels([moment.time - start for moment in moments], apart=0.025 * end)
    for number, (moment, level) in enumerate(zip(moments, levels, strict=True), 1):
        color = FAULT if "killed" in moment.what else INK
        x = moment.time - start
        for axes in (top, bottom):
            axes.axvline(x, color=color, linewidth=0.9, linestyle="--", alpha=0.8)
        top.text(
            x, 1.03 + 0.07 * level, str(number), color=color, fontsize=9, ha="center",
            transform=top.get_xaxis_transform(),
        )  # fmt: skip


def _levels(times: Sequence[float], apart: float) -> list[int]:
    """The lowest line above the chart where each number has room: moments close together must not hide each other's."""
    last: list[float] = []  # by line
    found = []
    for time in times:
        level = next((level for level, before in enumerate(last) if time - before >= apart), len(last))
        last[level : level + 1] = [time]
        found.append(level)
    return found


def delays(table: pa.Table, by: str, label: str) -> str:
    """Mean departure delay by a column of the table."""
    grouped = _means(table, [by])
    figure, axes = plt.subplots(figsize=(4.8, 3))
    names = [str(name) for name in grouped[by].to_pylist()]
    axes.bar(names, grouped["dep_delay_mean"].to_pylist(), color=ACCENT)
    axes.set(xlabel=label, ylabel="mean departure delay, minutes")
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    return _svg(figure, f"Mean departure delay in minutes by {label}")


def delays_by_both(table: pa.Table) -> str:
    """Mean departure delay of each carrier in each hour; empty where nothing flew."""
    grouped = _means(table, ["carrier", "hour"])
    carriers = sorted(set(grouped["carrier"].to_pylist()))
    hours = range(min(grouped["hour"].to_pylist()), max(grouped["hour"].to_pylist()) + 1)
    cells = np.full((len(carriers), len(hours)), np.nan)
    for carrier, hour, mean in zip(
        *(grouped[n].to_pylist() for n in ("carrier", "hour", "dep_delay_mean")), strict=True
    ):
        cells[carriers.index(carrier), hour - hours[0]] = mean
    figure, axes = plt.subplots(figsize=(11, 4.4))
    most = float(np.nanpercentile(np.abs(cells), 95))  # one flight that was a day late must not make all others pale
    image = axes.imshow(cells, aspect="auto", cmap="BrBG_r", vmin=-most, vmax=most)
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set(xlabel="scheduled hour (New York)", ylabel="carrier")
    axes.spines[:].set_visible(False)
    figure.colorbar(image, label="mean departure delay, minutes", extend="both", pad=0.02)
    return _svg(figure, "Mean departure delay in minutes of each carrier in each scheduled hour")


def _means(table: pa.Table, by: list[str]) -> pa.Table:
    known = table.filter(pc.is_valid(table["dep_delay"]))
    return known.group_by(by).aggregate([("dep_delay", "mean")]).sort_by([(name, "ascending") for name in by])
