"""Rounds to medians, medians to tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
QUIET_CORES = 0.3  # a round in which others used more counts as disturbed
OURS, REFERENCE = "tallystick", "original, best"


@dataclass(frozen=True)
class Round:
    """One measured round; CPU per operation: of the client, of the mean bookie, of client and all bookies together."""

    load: str
    side: str
    rate: float
    p50_ms: float
    p99_ms: float
    client_us: float
    bookie_us: float
    total_us: float
    others_cores: float

    def __str__(self) -> str:
        return (
            f"{self.load}: {self.side}: {self.rate:,.0f}/s, "
            f"CPU {self.client_us:.2f} + {self.bookie_us:.2f} = {self.total_us:.2f} µs, "
            f"p50 {self.p50_ms:.2f} p99 {self.p99_ms:.2f} ms, others {self.others_cores:.2f} cores"
        )


def quiet(rounds: list[Round]) -> list[Round]:
    """Without the disturbed rounds, where two quiet ones remain."""
    kept = [found for found in rounds if found.others_cores <= QUIET_CORES]
    return kept if len(kept) >= 2 else rounds


def median(rounds: Iterable[Round], what: Callable[[Round], float]) -> float:
    return statistics.median(what(found) for found in quiet(list(rounds)))


def markdown(found: dict[str, Any]) -> str:
    """The whole report as Markdown."""
    rounds = [Round(**values) for values in found["rounds"]]
    machine = found["machine"]
    about = (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; fdatasync p50 behind 4 KB "
        f"{machine['fdatasync_4k_growing_p50_us']} µs (growing file) and {machine['fdatasync_4k_rewritten_p50_us']} µs "
        f"(written before); {len(rounds)} rounds in {found['seconds']:.0f} s"
        + (f", {found['skipped_rounds']} skipped for lack of time." if found["skipped_rounds"] else ".")
    )
    parts = [about, _rounds_table(rounds), _processes_table(found)]
    for side, reasons in found["failures"].items():
        after = "was left out from then on" if side in found["left_out"] else "those turns are not in the table"
        parts.append(f"**{side} failed** {len(reasons)} times; {after}: {'; '.join(dict.fromkeys(reasons))}")
    disturbed = statistics.median(found.others_cores for found in rounds) if rounds else 0.0
    if disturbed > QUIET_CORES:
        parts.append(f"Others used {disturbed:.1f} cores in the median round: compare CPU per operation, not rates.")
    return "\n\n".join(parts)


def _rounds_table(rounds: list[Round]) -> str:
    titles = (
        "load", "side", "operations/s (all rounds, K)", "p50 / p99 ms", "CPU µs: client + bookie = total",
        "rate ÷ best", "CPU ÷ best",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    groups: dict[tuple[str, str], list[Round]] = {}
    for found in rounds:
        groups.setdefault((found.load, found.side), []).append(found)
    for (load, side), group in groups.items():
        best = groups.get((load, REFERENCE))
        rate, total = median(group, lambda r: r.rate), median(group, lambda r: r.total_us)
        ratios = ("", "")
        if best and side != REFERENCE:
            ratios = (
                f"{rate / median(best, lambda r: r.rate):.2f}",
                f"{total / median(best, lambda r: r.total_us):.2f}" if total else "",
            )
        every = " ".join(f"{found.rate / 1e3:.1f}" for found in group)
        p50, p99 = median(group, lambda r: r.p50_ms), median(group, lambda r: r.p99_ms)
        waits = f"{p50:.2f} / {p99:.2f}" if p99 else f"{p50:.1f}" if p50 else "-"
        cpu = f"{median(group, lambda r: r.client_us):.2f} + {median(group, lambda r: r.bookie_us):.2f} = {total:.2f}"
        name = f"**{side}**" if side == OURS else side
        lines.append(f"| {load} | {name} | {rate:,.0f} ({every}) | {waits} | {cpu} | {ratios[0]} | {ratios[1]} |")
    return "\n".join(lines)


def _processes_table(found: dict[str, Any]) -> str:
    titles = (
        "side", "bookie start → answers, s", "killed and started again, s (entries it holds)",
        "RSS MB at rest: bookie; client", "after the load",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    rest, loaded = found["resident_mb"]["rest"], found["resident_mb"]["loaded"]
    for name, seconds in found["start_seconds"].items():
        restart = found["restarts"].get(name)
        again = f"{restart['seconds']:.2f} ({restart['entries'] / 1e6:.2f} M)" if restart else "-"
        memory = (f"{values[name]['bookie']:.0f}; {values[name]['client']:.0f}" for values in (rest, loaded))
        shown = f"**{name}**" if name == OURS else name
        lines.append(f"| {shown} | {' '.join(f'{s:.2f}' for s in seconds)} | {again} | {' | '.join(memory)} |")
    return "\n".join(lines)


def replace_table(text: str, table: str, begin: str = BEGIN, end: str = END) -> str:
    """``text`` with what stands between the two markers replaced."""
    before, _, rest = text.partition(begin)
    _, marker, after = rest.partition(end)
    if not marker:
        raise ValueError(f"no {begin} … {end} in the file")
    return f"{before}{begin}\n{table}\n{end}{after}"
