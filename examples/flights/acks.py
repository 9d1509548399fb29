"""The writing programs' logs of acknowledged rows.

Log lines: ``acked PART FIRST_POSITION FIRST_ROW COUNT SECONDS`` for each run of rows, synced to disk after the
acknowledgements came: what stands there was promised, whatever happens to the program. A part is a ledger, and
positions are its entries; or a queue of the topic, with its offsets. ``step SECONDS TEXT`` is what the program tells of
itself, and ``resumed ROW`` where it went on after another one.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO


@dataclass(frozen=True)
class AckedRun:
    """``count`` rows from ``row`` are at ``position`` and after it in ``part``; acknowledged at ``time`` (Unix s)."""

    part: int
    position: int
    row: int
    count: int
    time: float


@dataclass(frozen=True)
class Step:
    """What a program told of itself at ``time`` (Unix s)."""

    time: float
    text: str


@dataclass(frozen=True)
class AckLogContent:
    runs: tuple[AckedRun, ...] = ()
    steps: tuple[Step, ...] = ()
    resumed_at: int = 0  # the first row that was not stored when it began

    @property
    def rows(self) -> int:
        return sum(run.count for run in self.runs)


class AckLog:
    """What was acknowledged, on disk before anything else happens."""

    def __init__(self, path: str) -> None:
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by ``__exit__``

    def write(self, *words: object) -> None:
        print(*words, file=self._file, flush=True)
        os.fdatasync(self._file.fileno())

    def step(self, text: str) -> None:
        self.write("step", time.time(), text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_log(path: Path) -> AckLogContent:
    """Whole lines only: a program killed in the middle of one had not synced it."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    runs, steps, resumed_at = [], [], 0
    for line in text[: text.rfind("\n") + 1].splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "acked":
            part, position, row, count, seconds = rest.split()
            runs.append(AckedRun(int(part), int(position), int(row), int(count), float(seconds)))
        elif kind == "step":
            seconds, _, said = rest.partition(" ")
            steps.append(Step(float(seconds), said))
        else:
            resumed_at = int(rest)
    return AckLogContent(tuple(runs), tuple(steps), resumed_at)
