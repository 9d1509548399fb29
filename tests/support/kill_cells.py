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
SPECULATE = "waits, a second attempt is through before it"
BOOKIE, BOOKIE_HANGS = "bookie killed", "bookie hangs"
OWNER, MASTER = "owner of the source killed", "broker master killed"
SUCCESSOR = "owner of the source hangs, another takes over"
SINK_MASTER, SINK_MASTER_HANGS = "broker master of the sink killed", "broker master of the sink hangs"
PROMOTION = "broker master lost, its slave promoted"
# With the metadata on ZooKeeper.
EXPIRE = "hangs until its ZooKeeper session is over"
ZOOKEEPER, ZOOKEEPER_HANGS = "ZooKeeper killed and started", "ZooKeeper hangs for longer than sessions"
ZOOKEEPER_GONE = "ZooKeeper killed, for longer than calls wait"
ON_ZOOKEEPER = (EXPIRE, ZOOKEEPER, ZOOKEEPER_HANGS, ZOOKEEPER_GONE)
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
    topic: bool = False  # into which the query writes, not into a stream

    @property
    def name(self) -> str:
        return f"{self.moment}: {self.what}, {self.master}"

    @property
    def what(self) -> str:
        """The deed, with what is special about the query."""
        return f"{self.deed}{'; few rows' if self.few else ''}{'; into a topic' if self.topic else ''}"

    @property
    def id(self) -> str:
        return re.sub("[^a-z0-9]+", "-", self.name.lower()).strip("-")


def _cells() -> list[Cell]:
    cells = [Cell(moment, FAIL, RETRIES, goes_on=True) for moment in TASK]
    cells += [Cell(moment, DIE, RETRIES, goes_on=True, in_ci=moment == WRITES) for moment in TASK]
    cells += [Cell(moment, DIE, LOCAL) for moment in TASK]
    cells += [Cell(moment, HANG, LOCAL, goes_on=True) for moment in (*TASK, *COMMIT, PLANS)]
    cells += [Cell(moment, DRIVER) for moment in (*TASK, PLANS)]
    cells += [Cell(moment, DRIVER, in_ci=moment in (SPLICES, SPLICED)) for moment in COMMIT]
    cells += [Cell(moment, DRIVER, few=True) for moment in COMMIT]
    cells += [Cell(moment, DIE, in_ci=moment == SPLICED) for moment in (*COMMIT, PLANS)]
    cells += [Cell(moment, EXECUTOR, CLUSTER, goes_on=True, in_ci=moment == WROTE) for moment in TASK]
    cells += [Cell(moment, SPECULATE, CLUSTER, goes_on=True, in_ci=moment == WROTE) for moment in TASK]
    cells += [Cell(moment, BOOKIE, goes_on=True) for moment in (*TASK, *COMMIT, PLANS)]
    cells += [Cell(moment, BOOKIE_HANGS, goes_on=True, in_ci=moment == COMMITS) for moment in (*TASK, *COMMIT, PLANS)]
    cells += [Cell(moment, OWNER, goes_on=True, in_ci=moment == WRITES) for moment in (WRITES, COMMITS)]
    cells += [Cell(moment, MASTER, goes_on=True, in_ci=moment == WRITES) for moment in (WRITES, COMMITS)]
    cells += [Cell(moment, RIVAL, in_ci=moment == SPLICES) for moment in (BEGINS, WROTE, *COMMIT)]
    cells += [Cell(SPLICED, NEW_CHECKPOINT, in_ci=True), Cell(COMMITS, NEW_CHECKPOINT)]
    cells += [Cell(WRITES, PROMOTION, goes_on=True)]
    cells += [Cell(moment, SUCCESSOR, goes_on=True) for moment in (PLANS, WRITES, COMMITS)]
    return [*cells, *_cells_on_zookeeper(), *_cells_into_a_topic()]


def _cells_on_zookeeper() -> list[Cell]:
    met = (PLANS, WRITES, WROTE, COMMITS, SPLICES, SPLICED)
    cells = [Cell(moment, EXPIRE, goes_on=True, in_ci=moment == SPLICES) for moment in met]
    cells += [Cell(moment, ZOOKEEPER, goes_on=True) for moment in met]
    cells += [Cell(moment, ZOOKEEPER_HANGS, goes_on=True) for moment in met]
    return [*cells, *(Cell(moment, ZOOKEEPER_GONE) for moment in (WRITES, SPLICES))]


def _cells_into_a_topic() -> list[Cell]:
    cells = [Cell(moment, DIE, RETRIES, goes_on=True, topic=True) for moment in TASK]
    cells += [Cell(moment, SPECULATE, CLUSTER, goes_on=True, topic=True) for moment in TASK]
    cells += [Cell(moment, DRIVER, topic=True) for moment in (*TASK, COMMITS, COMMITTED)]
    cells += [Cell(moment, PROMOTION, goes_on=True, topic=True) for moment in (WRITES, COMMITS)]
    cells += [Cell(moment, SINK_MASTER, goes_on=True, topic=True) for moment in (*TASK, COMMITS)]
    return cells + [Cell(moment, SINK_MASTER_HANGS, goes_on=True, topic=True) for moment in (*TASK, COMMITS)]


CELLS = _cells()


BEGIN, END = "<!-- cells: begin -->", "<!-- cells: end -->"
HEAD = "| moment | what happens | Spark | the query | seconds | in CI |\n|---|---|---|---|---|---|\n"


def write_table(page: Path, seconds: Mapping[Cell, float | None]) -> None:
    """Renew the rows of the cells that were run: their seconds, or None of one that failed. The others stay."""
    text = page.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    kept = _seconds_of(text[start:end])
    rows = "".join(_row(cell, seconds[cell] if cell in seconds else kept.get(_key(cell))) for cell in CELLS)
    page.write_text(f"{text[:start]}\n{HEAD}{rows}{text[end:]}")


def _seconds_of(table: str) -> dict[str, float]:
    """The time of each cell that has one, by what its row begins with."""
    rows = re.findall(r"^(\|.*\|) [a-z ]+ \| (\d+) \| (?:yes)? ?\|$", table, re.MULTILINE)
    return {key: float(seconds) for key, seconds in rows}


def _key(cell: Cell) -> str:
    return f"| {cell.moment} | {cell.what} | `{cell.master}` |"


def _row(cell: Cell, seconds: float | None) -> str:
    outcome = "not run" if seconds is None else "goes on" if cell.goes_on else "started again"
    time = "" if seconds is None else f"{seconds:.0f}"
    return f"{_key(cell)} {outcome} | {time} | {'yes' if cell.in_ci else ''} |\n"
