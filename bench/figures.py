"""What the reports of a run say in JSON, as medians: what goals are compared with, and what is kept of a run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import OURS, PYTHON, Round, median

Key = tuple[str, str, str]  # bench, load, side
MEMORY = "memory"  # a load of its own: resident MB
SPARK = "spark"


@dataclass
class Figures:
    """``values``: by figure (``rate``, ``total_us``, ``p99_ms``, ``client_us`` …) of a load and side of a bench.

    ``machine`` is that of the first report; ``compiled`` says whether any of our sides had the compiled codec.
    """

    values: dict[Key, dict[str, float]] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def get(self, bench: str, load: str, side: str, figure: str) -> float | None:
        return self.values.get((bench, load, side), {}).get(figure)

    def add(self, bench: str, results: Mapping[str, Any]) -> None:
        """Take one report in. Our side of a run without the compiled codec is the one in pure Python."""
        self.machine = self.machine or dict(results["machine"])
        pure = results["machine"].get("codec") == "python"
        each = _of_spark(results) if bench == SPARK else {**_of_rounds(results), **_of_memory(results)}
        for (load, side), values in each.items():
            self.values[bench, load, PYTHON if pure and side == OURS else side] = values


def of_folder(folder: Path) -> Figures:
    """Those of all reports that a run left: ``BENCH.json``, and ``BENCH-python.json`` of a run in pure Python."""
    figures = Figures()
    for file in sorted(folder.glob("*.json")):
        results = json.loads(file.read_text())
        if "machine" in results and "rounds" in results:
            figures.add(file.stem.removesuffix("-python"), results)
    return figures


def _of_rounds(results: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    groups: dict[tuple[str, str], list[Round]] = {}
    for one in results["rounds"]:
        if "total_us" in one:  # else it is no round beside an original
            groups.setdefault((one["load"], one["side"]), []).append(Round(**one))
    return {key: _medians(rounds) for key, rounds in groups.items()}


def _medians(rounds: list[Round]) -> dict[str, float]:
    values = {name: median(rounds, lambda one, name=name: float(getattr(one, name))) for name in ("rate", "total_us")}  # type: ignore[misc]
    for name in ("p50_ms", "p99_ms"):
        if wait := median(rounds, lambda one, name=name: float(getattr(one, name))):  # type: ignore[misc]
            values[name] = wait
    for role in rounds[0].cpu_us:
        values[f"{role}_us"] = median(rounds, lambda one, role=role: one.cpu_us[role])  # type: ignore[misc]
    return values


def _of_memory(results: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    values: dict[tuple[str, str], dict[str, float]] = {}
    for when, sides in results.get("resident_mb", {}).items():
        for side, roles in sides.items():
            for role, megabytes in roles.items():
                values.setdefault((MEMORY, side), {})[f"{role}_{when}_mb"] = megabytes
    return values


def _of_spark(results: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    return {
        (workload, OURS): {
            "rate": statistics.median(one["rows_per_s"] for one in rounds),
            "cpu_s_per_gb": statistics.median(one["cpu_s_per_gb"] for one in rounds),
        }
        for workload, rounds in results["rounds"].items()
    }


def write(figures: Figures, file: Path) -> None:
    """What is kept of a run: a line for each load and side."""
    lines = [
        json.dumps(
            {
                "bench": bench,
                "load": load,
                "side": side,
                **{name: float(f"{value:.4g}") for name, value in each.items()},
            }
        )
        for (bench, load, side), each in sorted(figures.values.items())
    ]
    rows = ",\n  ".join(lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{{"machine": {json.dumps(figures.machine)},\n "figures": [\n  {rows}\n ]}}\n')


def read(file: Path) -> Figures:
    """As ``write`` left it."""
    content = json.loads(file.read_text())
    values = {(one.pop("bench"), one.pop("load"), one.pop("side")): one for one in content["figures"]}
    return Figures(values, content["machine"])
