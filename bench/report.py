"""Rounds to medians, medians to the tables of a report: what the benchmarks against an original share."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from machine import QUIET_CORES
from turns import Failure

OURS = "tallystick"
PYTHON = "tallystick, pure Python"  # with the codec in Python where a compiled one is installed


@dataclass(frozen=True)
class Round:
    """One measured round. ``cpu_us``: per operation, by role; ``p50_ms``, ``p99_ms``: 0 where not taken."""

    load: str
    side: str
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: dict[str, float]
    total_us: float  # of all processes together
    others_cores: float

    def __str__(self) -> str:
        cpu = " + ".join(f"{role} {used:.2f}" for role, used in self.cpu_us.items())
        return (
            f"{self.load}: {self.side}: {self.rate:,.0f}/s, CPU {cpu} = {self.total_us:.2f} µs, "
            f"p50 {self.p50_ms:.2f} p99 {self.p99_ms:.2f} ms, others {self.others_cores:.2f} cores"
        )


@dataclass(frozen=True)
class Form:
    """How a report calls things, and what it sets beside the ``reference`` side: titles, and what of a round."""

    operations: str
    roles: str
    reference: str
    ratios: tuple[tuple[str, Callable[[Round], float]], ...]


def quiet(rounds: list[Round]) -> list[Round]:
    """Without the disturbed rounds, where two quiet ones remain."""
    quiet_rounds = [one for one in rounds if one.others_cores <= QUIET_CORES]
    return quiet_rounds if len(quiet_rounds) >= 2 else rounds


def median(rounds: Iterable[Round], what: Callable[[Round], float]) -> float:
    return statistics.median(what(one) for one in quiet(list(rounds)))


def grid(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def title_of(side: str) -> str:
    return f"**{side}**" if side == OURS else side


def markdown(results: dict[str, Any], table: str, processes: str, disk: str = "") -> str:
    """The whole report: ``table`` has the rounds, ``processes`` is what comes behind it, ``disk`` is said beside the
    machine."""
    rounds: list[Round] = results["rounds"]
    failures: list[Failure] = results["failures"]
    machine = results["machine"]
    about = (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}{disk}; "
        f"{len(rounds)} rounds in {results['seconds']:.0f} s"
        + (f", {results['skipped_rounds']} skipped for lack of time." if results["skipped_rounds"] else ".")
    )
    parts = [about, table, processes]
    for side in dict.fromkeys(failure.side for failure in failures):
        reasons = [str(failure) for failure in failures if failure.side == side]
        after = "was left out from then on" if side in results["left_out"] else "those turns have no figures"
        parts.append(f"**{side} failed** {len(reasons)} times; {after}: {'; '.join(dict.fromkeys(reasons))}")
    disturbed = statistics.median(one.others_cores for one in rounds) if rounds else 0.0
    if disturbed > QUIET_CORES:
        parts.append(f"Others used {disturbed:.1f} cores in the median round: compare CPU, not rates.")
    return "\n\n".join(parts)


def rounds_table(rounds: list[Round], failures: list[Failure], form: Form) -> str:
    titles = (
        "load",
        "side",
        f"{form.operations}/s (all rounds, K)",
        "p50 / p99 ms",
        f"CPU µs: {form.roles} = total",
        *(title for title, _ in form.ratios),
    )
    groups: dict[tuple[str, str], list[Round]] = {}
    for one in rounds:
        groups.setdefault((one.load, one.side), []).append(one)
    failed = Counter((failure.load, failure.side) for failure in failures)
    loads = {load: number for number, load in enumerate(dict.fromkeys(load for load, _ in groups))}
    only_failed = sorted((key for key in failed if key[0] in loads and key not in groups), key=lambda key: key[1])
    rows = []
    for key in sorted([*groups, *only_failed], key=lambda key: loads[key[0]]):
        reference = groups.get((key[0], form.reference)) if key[1] != form.reference else None
        rows.append([key[0], title_of(key[1]), *_cells(groups.get(key, []), failed[key], reference, form)])
    return grid(titles, rows)


def _cells(group: list[Round], failed: int, reference: list[Round] | None, form: Form) -> list[str]:
    if not group:
        return [f"all {failed} failed", *["-"] * (2 + len(form.ratios))]
    every = " ".join(f"{one.rate / 1e3:.1f}" for one in group) + (f", {failed} failed" if failed else "")
    p50, p99 = median(group, lambda r: r.p50_ms), median(group, lambda r: r.p99_ms)
    waits = f"{p50:.2f} / {p99:.2f}" if p99 else f"{p50:.1f}" if p50 else "-"
    cpu = " + ".join(f"{median(group, _cpu_of(role)):.2f}" for role in group[0].cpu_us)
    return [
        f"{median(group, lambda r: r.rate):,.0f} ({every})",
        waits,
        f"{cpu} = {median(group, lambda r: r.total_us):.2f}",
        *(_ratio(group, reference, what) for _, what in form.ratios),
    ]


def _cpu_of(role: str) -> Callable[[Round], float]:
    return lambda one: one.cpu_us[role]


def _ratio(group: list[Round], reference: list[Round] | None, what: Callable[[Round], float]) -> str:
    divisor = median(reference, what) if reference else 0.0
    return f"{median(group, what) / divisor:.2f}" if divisor else ""


def replace_table(text: str, table: str, place: str) -> str:
    """``text`` with what stands between the two markers of a place replaced."""
    begin, end = f"<!-- {place}: begin -->", f"<!-- {place}: end -->"
    before, _, rest = text.partition(begin)
    _, marker, after = rest.partition(end)
    if not marker:
        raise ValueError(f"no {begin} … {end} in the file")
    return f"{before}{begin}\n{table}\n{end}{after}"
