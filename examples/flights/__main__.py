"""``python -m examples.flights [--rows N] [--out FOLDER]``: play the story, build the table, prove it, show it."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights import data, page, verify
from examples.flights.processes import Cluster, IngestProcess
from examples.flights.story import Run, Story

ALL_ROWS = 336_776
BOOKIES = 4
MARK = ".flights"  # in a folder that this program made and may empty
# Two copies of each row, each in a journal and an entry log, and the table; journals are allocated in large steps.
ROW_BYTES, SPARE_BYTES = 2_000, 200_000_000
SECONDS = 20  # the writers are paced to take about this long, so that each fault falls into the middle of writing


def empty_folder(folder: Path) -> None:
    """Make the work folder. What an earlier run left there goes, its processes first; no other folder is emptied."""
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()):
        if not mark.exists():
            raise SystemExit(f"{folder} is not empty, and no earlier run of this program made it: name another --out")
        Cluster(folder).stop()
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()


def check_space(folder: Path, rows: int) -> None:
    needed = SPARE_BYTES + rows * ROW_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(
            f"{folder} needs {needed / 1e6:,.0f} MB, and its disk has {free / 1e6:,.0f} MB left: "
            "name another --out, or fewer --rows"
        )


def play(folder: Path, rows: int, console: Console) -> Run:
    """The cluster and the faults, with live progress; Spark starts meanwhile, and then reads."""
    columns = (
        TextColumn("  writing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows acknowledged"),
        TimeElapsedColumn(),
    )
    cluster, table = Cluster(folder), folder / "flights.parquet"
    with cluster.running(BOOKIES) as uri, IngestProcess(uri, folder / "spark.log", table) as spark:
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("rows", total=rows)
            story = Story(
                cluster=cluster,
                rows=rows,
                rate=rows / SECONDS,
                show=lambda done: progress.update(task, completed=done),
                tell=lambda text: progress.console.print(f"  {text}", highlight=False, soft_wrap=True),
                run=Run(uri),
            )
            story.play()
        console.print("[bold]Spark reads the bookies into a table[/]")
        started = time.monotonic()
        with console.status("  reading, parsing, writing Parquet"):
            spark.finish(",".join(map(str, story.run.ledgers)))
        console.print(f"  {table} in {time.monotonic() - started:.1f} s (Spark was started during the writing)")
    return story.run


def report(run: Run, verdict: verify.Verdict, folder: Path) -> list[tuple[str, str]]:
    """The end of the story in lines."""
    span = max(r.time for r in run.acked) - min(m.time for m in run.moments)
    return [
        ("rows in the table", f"{verdict.rows:,}"),
        ("acknowledged rows lost", f"{verdict.lost:,} of {verdict.acknowledged:,}"),
        ("rows doubled", f"{verdict.doubled:,}"),
        ("source rows missing", f"{verdict.missing:,}"),
        ("rows that differ from the source in any column", f"{verdict.different:,}"),
        ("rows out of order", f"{verdict.out_of_order:,}"),
        ("ledgers", ", ".join(map(str, run.ledgers))),
        ("ensemble changes", "; ".join(run.ensemble_changes) or "none"),
        ("recovery", f"{len(run.steps)} steps, resumed at row {run.resumed_at:,}"),
        ("write rate (paced, faults included)", f"{verdict.acknowledged / span:,.0f} rows/s"),
        ("table", str(folder / "flights.parquet")),
        ("page", str(folder / "flights.html")),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=ALL_ROWS, help=f"how many flights, 2,000 to {ALL_ROWS:,} (default: all)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/flights"), help="folder for the cluster, the table and the page"
    )
    options = parser.parse_args()
    if not 2_000 <= options.rows <= ALL_ROWS:
        parser.error(f"--rows must be 2,000 to {ALL_ROWS:,}")
    console = Console()
    folder = options.out.resolve()
    empty_folder(folder)
    check_space(folder, options.rows)
    console.print(
        f"[bold]{options.rows:,} flights through {BOOKIES} bookies[/] (ensemble 3, write quorum 2, ack quorum 2)"
    )
    run = play(folder, options.rows, console)
    console.print("[bold]Every row against the source[/]")
    verdict = verify.compare(data.load(options.rows), folder / "flights.parquet", run.acked)
    lines = report(run, verdict, folder)
    page.write(folder / "flights.html", run, verdict, folder / "flights.parquet", lines)
    for name, value in lines:
        console.print(f"  {name:48}{value}", highlight=False, soft_wrap=True)
    console.print("[bold green]PASSED[/]" if verdict.good else "[bold red]FAILED[/]")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: whatever was started is ended
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the cluster, the writer and Spark are stopped")
