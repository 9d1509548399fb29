"""Reading the writers' logs of acknowledged rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class AckedRun:
    """``count`` rows from ``row`` are entries of ``ledger`` from ``entry``; acknowledged at ``time`` (Unix seconds)."""

    ledger: int
    entry: int
    row: int
    count: int
    time: float


@dataclass(frozen=True)
class AckLogContent:
    ledgers: tuple[int, ...]
    runs: tuple[AckedRun, ...]

    @property
    def rows(self) -> int:
        return sum(run.count for run in self.runs)


def read_log(path: Path) -> AckLogContent:
    """Whole lines only: a writer killed in the middle of one had not synced it."""
    text = path.read_text(encoding="ascii") if path.exists() else ""
    lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
    ledgers = tuple(int(words[1]) for words in lines if words[0] == "ledger")
    runs = tuple(
        AckedRun(*(int(word) for word in words[1:5]), time=float(words[5])) for words in lines if words[0] == "acked"
    )
    return AckLogContent(ledgers, runs)
