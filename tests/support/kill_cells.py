"""The cells of the kill matrix: what is done to whom, at which moment of a batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.moments import BEGINS, COMMITS, COMMITTED, PLANS, SPLICED, SPLICES, WRITES, WROTE

TASK, COMMIT = (BEGINS, WRITES, WROTE), (COMMITS, SPLICES, SPLICED, COMMITTED)
# Deeds.
FAIL, DIE, HANG = "fails", "is killed", "hangs"  # the process that has come to the moment
DRIVER, EXECUTOR = "driver killed", "executor killed"
BOOKIE, BOOKIE_HANGS = "bookie killed", "bookie hangs"
OWNER, MASTER = "owner of the source killed", "broker master killed"
RIVAL = "a second driver, then the first again"
NEW_CHECKPOINT = "driver killed, checkpoint lost"
LOCAL, RETRIES, CLUSTER = "local[2]", "local[2,4]", "cluster"


@dataclass(frozen=True)
class Cell:
    """``goes_on``: the query lives through it; else it is started again, on another number of cores.

    ``in_ci``: always run; the others are run with ``--all-cells``.
    """

    moment: str
    deed: str
    master: str = LOCAL
    goes_on: bool = False
    in_ci: bool = False
    few: bool = False  # rows: the driver writes them, not the tasks

    @property
    def name(self) -> str:
        rows = " (few rows)" if self.few else ""
        return f"{self.moment}: {self.deed}{rows}, {self.master}"

    @property
    def id(self) -> str:
        return re.sub("[^a-z0-9]+", "-", self.name)


def _cells() -> list[Cell]:
    cells = [Cell(moment, FAIL, RETRIES, goes_on=True, in_ci=moment == WROTE) for moment in TASK]
    cells += [Cell(moment, DIE, RETRIES, goes_on=True, in_ci=moment == WRITES) for moment in TASK]
    cells += [Cell(moment, DIE, LOCAL) for moment in TASK]
    cells += [Cell(moment, HANG, LOCAL, goes_on=True) for moment in (*TASK, *COMMIT, PLANS)]
    cells += [Cell(moment, DRIVER, in_ci=moment == WROTE) for moment in (*TASK, PLANS)]
    cells += [Cell(moment, DRIVER, in_ci=moment in (SPLICES, SPLICED)) for moment in COMMIT]
    cells += [Cell(moment, DRIVER, few=True) for moment in COMMIT]
    cells += [Cell(moment, DIE, in_ci=moment == SPLICED) for moment in (*COMMIT, PLANS)]
    cells += [Cell(moment, EXECUTOR, CLUSTER, goes_on=True, in_ci=moment == WROTE) for moment in TASK]
    cells += [Cell(moment, BOOKIE, goes_on=True) for moment in (*TASK, *COMMIT, PLANS)]
    cells += [Cell(moment, BOOKIE_HANGS, goes_on=True, in_ci=moment == COMMITS) for moment in (*TASK, *COMMIT, PLANS)]
    cells += [Cell(moment, OWNER, goes_on=True, in_ci=moment == WRITES) for moment in (WRITES, COMMITS)]
    cells += [Cell(moment, MASTER, goes_on=True, in_ci=moment == WRITES) for moment in (WRITES, COMMITS)]
    cells += [Cell(moment, RIVAL, in_ci=moment == SPLICES) for moment in (BEGINS, WROTE, *COMMIT)]
    return [*cells, Cell(SPLICED, NEW_CHECKPOINT, in_ci=True), Cell(COMMITS, NEW_CHECKPOINT)]


CELLS = _cells()


BEGIN, END = "<!-- cells: begin -->", "<!-- cells: end -->"
HEAD = "| moment | what happens | Spark | the query | seconds | in CI |\n|---|---|---|---|---|---|\n"


def write_table(page: Path, seconds: Mapping[Cell, float]) -> None:
    """Renew the table of the page. A cell that has not passed shows no time."""
    text = page.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    rows = "".join(_row(cell, seconds.get(cell)) for cell in CELLS)
    page.write_text(f"{text[:start]}\n{HEAD}{rows}{text[end:]}")


def _row(cell: Cell, seconds: float | None) -> str:
    deed = f"{cell.deed}; few rows" if cell.few else cell.deed
    outcome = "not run" if seconds is None else "goes on" if cell.goes_on else "started again"
    time = "" if seconds is None else f"{seconds:.0f}"
    return f"| {cell.moment} | {deed} | `{cell.master}` | {outcome} | {time} | {'yes' if cell.in_ci else ''} |\n"
