"""Rounds of ``broker.py`` to medians, medians to tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker_sides import OURS, THEIRS
from report import QUIET_CORES

BEGIN, END = "<!-- broker table: begin -->", "<!-- broker table: end -->"


@dataclass(frozen=True)
class Round:
    """One measured round; CPU per message of the master, the slave and the client. ``p50_ms``: 0 where not taken."""

    load: str
    side: str
    rate: float
    p50_ms: float
    p99_ms: float
    master_us: float
    slave_us: float
    client_us: float
    others_cores: float

    @property
    def total_us(self) -> float:
        return self.master_us + self.slave_us + self.client_us

    def __str__(self) -> str:
        return (
            f"{self.load}: {self.side}: {self.rate:,.0f}/s, CPU master {self.master_us:.2f} + slave "
            f"{self.slave_us:.2f} + client {self.client_us:.2f} = {self.total_us:.2f} µs, "
            f"p50 {self.p50_ms:.2f} p99 {self.p99_ms:.2f} ms, others {self.others_cores:.2f} cores"
        )


def median(rounds: list[Round], what: Callable[[Round], float]) -> float:
    """Without the disturbed rounds, where two quiet ones remain."""
    quiet = [found for found in rounds if found.others_cores <= QUIET_CORES]
    return statistics.median(what(found) for found in (quiet if len(quiet) >= 2 else rounds))


def markdown(found: dict[str, Any]) -> str:
    """The whole report as Markdown."""
    rounds = [Round(**values) for values in found["rounds"]]
    machine = found["machine"]
    about = (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; "
        f"{len(rounds)} rounds in {found['seconds']:.0f} s"
        + (f", {found['skipped_rounds']} skipped for lack of time." if found["skipped_rounds"] else ".")
    )
    parts = [about, _rounds_table(rounds), _processes_table(found)]
    for side, reasons in found["failures"].items():
        after = "was left out from then on" if side in found["left_out"] else "those turns are not in the table"
        parts.append(f"**{side} failed** {len(reasons)} times; {after}: {'; '.join(dict.fromkeys(reasons))}")
    disturbed = statistics.median(found.others_cores for found in rounds) if rounds else 0.0
    if disturbed > QUIET_CORES:
        parts.append(f"Others used {disturbed:.1f} cores in the median round: compare CPU per message, not rates.")
    return "\n\n".join(parts)


def _rounds_table(rounds: list[Round]) -> str:
    titles = (
        "load", "side", "messages/s (all rounds, K)", "p50 / p99 ms", "CPU µs: master + slave + client",
        "rate ÷ original", "master's CPU ÷ original", "all CPU ÷ original",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    groups: dict[tuple[str, str], list[Round]] = {}
    for found in rounds:
        groups.setdefault((found.load, found.side), []).append(found)
    for (load, side), group in groups.items():
        p50, p99 = median(group, lambda r: r.p50_ms), median(group, lambda r: r.p99_ms)
        every = " ".join(f"{found.rate / 1e3:.1f}" for found in group)
        cpu = " + ".join(
            f"{median(group, what):.2f}"
            for what in (lambda r: r.master_us, lambda r: r.slave_us, lambda r: r.client_us)
        )
        cells = [
            load, f"**{side}**" if side == OURS else side, f"{median(group, lambda r: r.rate):,.0f} ({every})",
            f"{p50:.2f} / {p99:.2f}" if p99 else "-", cpu,
            *_ratios(group, groups.get((load, THEIRS))),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratios(group: list[Round], reference: list[Round] | None) -> list[str]:
    if not reference or group is reference:
        return ["", "", ""]

    def ratio(what: Callable[[Round], float]) -> str:
        divisor = median(reference, what)
        return f"{median(group, what) / divisor:.2f}" if divisor else ""

    return [ratio(lambda r: r.rate), ratio(lambda r: r.master_us), ratio(lambda r: r.total_us)]


def _processes_table(found: dict[str, Any]) -> str:
    titles = ("side", "broker start → answers, s", "RSS without files, MB, at rest: master; slave", "after the load")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    rest, loaded = found["resident_mb"]["rest"], found["resident_mb"]["loaded"]
    for name, seconds in found["start_seconds"].items():
        memory = (f"{values[name]['master']:.0f}; {values[name]['slave']:.0f}" for values in (rest, loaded))
        shown = f"**{name}**" if name == OURS else name
        lines.append(f"| {shown} | {' '.join(f'{s:.2f}' for s in seconds)} | {' | '.join(memory)} |")
    return "\n".join(lines)
