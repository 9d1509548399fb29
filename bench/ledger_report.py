"""What the report of ``ledger.py`` says beside the rounds."""

from __future__ import annotations

from typing import Any

import report
from machine import RESTED_S
from report import Form, grid, title_of

REFERENCE = "original, best"
FORM = Form(
    operations="operations",
    roles="client + bookie",
    reference=REFERENCE,
    ratios=(("rate ÷ best", lambda r: r.rate), ("CPU ÷ best", lambda r: r.total_us)),
)


def markdown(results: dict[str, Any]) -> str:
    """The whole report as Markdown."""
    machine = results["machine"]
    disk = (
        f"; fdatasync p50 behind 4 KB {machine['fdatasync_4k_growing_p50_us']} µs (growing file) "
        f"and {machine['fdatasync_4k_rewritten_p50_us']} µs (written before)"
    )
    return report.markdown(
        results, report.rounds_table(results["rounds"], results["failures"], FORM), _processes_table(results), disk
    )


def _processes_table(results: dict[str, Any]) -> str:
    titles = (
        "side",
        "bookie start → answers, s",
        "killed and started again, s (entries it holds)",
        "RSS MB at rest: bookie; client",
        f"{RESTED_S:.0f} s after the load",
    )
    rows = []
    rest, loaded = results["resident_mb"]["rest"], results["resident_mb"]["loaded"]
    for name, seconds in results["start_seconds"].items():
        restart = results["restarts"].get(name)
        again = f"{restart['seconds']:.2f} ({restart['entries'] / 1e6:.2f} M)" if restart else "-"
        memory = (f"{values[name]['bookie']:.0f}; {values[name]['client']:.0f}" for values in (rest, loaded))
        rows.append([title_of(name), " ".join(f"{s:.2f}" for s in seconds), again, *memory])
    return grid(titles, rows)
