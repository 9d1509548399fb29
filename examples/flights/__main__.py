"""``python -m examples.flights [--rows N] [--out FOLDER]``: play the story, build the table, prove it, show it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights import data, page, verify
from examples.flights.story import Cluster, Run, Story

ALL_ROWS = 336_776
BOOKIES = 4
SECONDS = 20  # the writers are paced to take about this long, so that each fault falls into the middle of writing


@contextlib.contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """What this process and the Java that it starts say on stderr goes to a file; an error names the file."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception as error:
        error.add_note(f"Spark's own log: {log}")
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def play(folder: Path, rows: int, console: Console) -> Run:
    """The cluster and the faults, with live progress."""
    columns = (
        TextColumn("  writing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows acknowledged"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("rows", total=rows)
        story = Story(
            cluster=Cluster(folder),
            rows=rows,
            rate=rows / SECONDS,
            show=lambda done: progress.update(task, completed=done),
            tell=lambda text: progress.console.print(f"  {text}", highlight=False, soft_wrap=True),
        )
        with story.cluster.running(BOOKIES) as uri:
            story.run.uri = uri
            story.play()
            progress.stop()
            console.print("[bold]Spark reads the bookies into a table[/]")
            started = time.monotonic()
            with stderr_to(folder / "spark.log"):
                verify.ingest(uri, story.run.ledgers, folder / "flights.parquet")
            console.print(f"  {folder / 'flights.parquet'} in {time.monotonic() - started:.1f} s (with Spark's start)")
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
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
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
    sys.exit(main())
