"""The writing programs' logs of acknowledged rows.

Log lines: ``part ID`` when a ledger was created, ``acked PART FIRST_POSITION FIRST_ROW COUNT SECONDS`` for each run of
rows, synced to disk after the acknowledgements came: what stands there was promised, whatever happens to the program.
A part is a ledger, and positions are its entries; or a queue of the topic, with its offsets.
"""

from __future__ import annotations

import os
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
class AckLogContent:
    parts: tuple[int, ...]
    runs: tuple[AckedRun, ...]

    @property
    def rows(self) -> int:
        return sum(run.count for run in self.runs)


class AckLog:
    """What was acknowledged, on disk before anything else happens."""

    def __init__(self, path: str) -> None:
        self._file: TextIO = open(path, "a", encoding="ascii")  # noqa: SIM115 - closed by ``__exit__``

    def write(self, *words: object) -> None:
        print(*words, file=self._file, flush=True)
        os.fdatasync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_log(path: Path) -> AckLogContent:
    """Whole lines only: a program killed in the middle of one had not synced it."""
    text = path.read_text(encoding="ascii") if path.exists() else ""
    lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
    parts = tuple(int(words[1]) for words in lines if words[0] == "part")
    runs = tuple(
        AckedRun(int(part), int(position), int(row), int(count), float(time))
        for kind, part, position, row, count, time in (words for words in lines if words[0] == "acked")
    )
    return AckLogContent(parts, runs)
