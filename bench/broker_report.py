"""What the report of ``broker.py`` says beside the rounds."""

from __future__ import annotations

from typing import Any

import report
from broker_sides import THEIRS
from machine import RESTED_S
from report import Form, grid, title_of

FORM = Form(
    operations="messages",
    roles="master + slave + client",
    reference=THEIRS,
    ratios=(
        ("rate ÷ original", lambda r: r.rate),
        ("master's CPU ÷ original", lambda r: r.cpu_us["master"]),
        ("all CPU ÷ original", lambda r: r.total_us),
    ),
)


def markdown(results: dict[str, Any]) -> str:
    """The whole report as Markdown."""
    return report.markdown(
        results, report.rounds_table(results["rounds"], results["failures"], FORM), _processes_table(results)
    )


def _processes_table(results: dict[str, Any]) -> str:
    titles = (
        "side",
        "broker start → answers, s",
        "RSS without files, MB, at rest: master; slave",
        f"{RESTED_S:.0f} s after the load",
    )
    rows = []
    rest, loaded = results["resident_mb"]["rest"], results["resident_mb"]["loaded"]
    for name, seconds in results["start_seconds"].items():
        memory = (f"{values[name]['master']:.0f}; {values[name]['slave']:.0f}" for values in (rest, loaded))
        rows.append([title_of(name), " ".join(f"{s:.2f}" for s in seconds), *memory])
    return grid(titles, rows)
