"""``python -m examples.flights [--rows N] [--out FOLDER]``: play the story, build the tables, prove them, show them."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights import data, page, report
from examples.flights.driver import SparkDriver
from examples.flights.processes import Cluster
from examples.flights.report import DELTA_TABLE, STREAM_TABLE, TOPIC_TABLE
from examples.flights.results import Derived, read_derived
from examples.flights.story import Stage
from examples.flights.stream_story import DELAYS, StreamRun, StreamStory
from examples.flights.topic_story import QUEUES, TOPIC, TopicRun, TopicStory
from examples.flights.writer import STREAM
from tallystick.errors import TallyError

ALL_ROWS = 336_776
BOOKIES, BROKERS = 4, "1+1"  # a master, and a slave for whom it waits
MARK = ".flights"  # in a folder that this program made and may empty
# Two copies of each row and of its delay in journals and entry logs, two in brokers' logs, three tables, and what Spark
# keeps of the batches; files are made in large steps.
ROW_BYTES, SPARE_BYTES = 4_500, 500_000_000
DELETING_PERCENT = 85  # above it brokers delete messages of any age
SECONDS = 20  # writers and senders are paced to take about this long, if their faults do not hold them longer


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
    """Raise SystemExit if the run does not fit the disk, or makes it so full that brokers delete what they have."""
    needed = SPARE_BYTES + rows * ROW_BYTES
    disk = shutil.disk_usage(folder)
    if disk.free < needed:
        raise SystemExit(
            f"{folder} needs {needed / 1e6:,.0f} MB, and its disk has {disk.free / 1e6:,.0f} MB left: "
            "name another --out, or fewer --rows"
        )
    percent, most = (disk.used + needed) / (disk.used + disk.free) * 100, DELETING_PERCENT
    if percent > most:
        raise SystemExit(
            f"{folder} needs {needed / 1e6:,.0f} MB, and its disk would be {percent:.1f} % full: above {most} % "
            "brokers delete messages; name another --out, or make room"
        )


@contextlib.contextmanager
def stage(cluster: Cluster, spark: SparkDriver, rows: int, console: Console, action: str) -> Iterator[Stage]:
    """A stage with a live bar that is gone afterwards."""
    columns = (
        TextColumn(f"  {action}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows acknowledged"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("rows", total=rows)
        yield Stage(
            cluster=cluster,
            spark=spark,
            rows=rows,
            rate=rows / SECONDS,
            show=lambda done: progress.update(task, completed=done),
            tell=lambda text: progress.console.print(f"  {text}", highlight=False, soft_wrap=True),
        )


def catch_up(spark: SparkDriver, console: Console, name: str) -> None:
    """Have the query read what is left."""
    with console.status(f"  Spark catches up with {name}"):
        spark.catch_up()
    console.print(f"  Spark has caught up with {name}", highlight=False, soft_wrap=True)


def play(folder: Path, source: pa.Table, console: Console) -> tuple[StreamRun, TopicRun, Derived]:
    """The cluster, both logs and their faults, with live progress. Spark starts meanwhile, follows each log, and reads
    it as a whole at its end."""
    cluster, rows = Cluster(folder), len(source)
    with cluster.running(BOOKIES, BROKERS) as (uri, name_server), SparkDriver(folder) as spark:
        with stage(cluster, spark, rows, console, "publishing") as first:
            stream = StreamStory(first, uri, source).play()
        catch_up(spark, console, "the stream")
        derived = read_derived(uri, DELAYS)
        spark.order(
            do="table",
            format="tally-stream",
            options={"uri": uri, "subscribe": STREAM},
            place=["ledger", "entry"],
            payload="value",
            table=str(folder / STREAM_TABLE),
        )
        with console.status("  Spark reads the bookies into a table"):
            spark.wait()
        console.print(f"  Spark has read the bookies into {folder / STREAM_TABLE}", highlight=False, soft_wrap=True)
        console.print(f"[bold]The same flights through a broker with a synchronous slave[/] (topic of {QUEUES} queues)")
        with stage(cluster, spark, rows, console, "sending") as second:
            topic = TopicStory(second, name_server, folder / DELTA_TABLE).play()
        catch_up(spark, console, f"the topic, from the slave: {folder / DELTA_TABLE}")
        spark.order(
            do="table",
            format="tally-topic",
            options={"nameServer": name_server, "subscribe": TOPIC},
            place=["queueId", "queueOffset"],
            payload="body",
            table=str(folder / TOPIC_TABLE),
        )
        with console.status("  Spark reads the slave into a table"):
            spark.wait()
        console.print(f"  Spark has read the slave into {folder / TOPIC_TABLE}", highlight=False, soft_wrap=True)
        spark.finish()
    return stream, topic, derived


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=ALL_ROWS, help=f"how many flights, 2,000 to {ALL_ROWS:,} (default: all)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/flights"), help="folder for the cluster, the tables and the page"
    )
    options = parser.parse_args()
    if not 2_000 <= options.rows <= ALL_ROWS:
        parser.error(f"--rows must be 2,000 to {ALL_ROWS:,}")
    console = Console()
    folder = options.out.resolve()
    empty_folder(folder)
    check_space(folder, options.rows)
    source = data.load(options.rows)
    console.print(
        f"[bold]{options.rows:,} flights through a stream on {BOOKIES} bookies[/] "
        "(ensemble 3, write quorum 2, ack quorum 2)",
        soft_wrap=True,
    )
    try:
        stream, topic, derived = play(folder, source, console)
    except (TallyError, TimeoutError) as error:
        raise SystemExit(f"the run ended early: {error or 'reading took too long'}; its logs: {folder}") from error
    console.print("[bold]Every row of every result against the source[/]")
    found = report.halves(folder, source, stream, topic, derived)
    page.write(folder / "flights.html", found, derived.table)
    for section in (section for half in found for section in half.sections):
        console.print(f"  [bold]{section.title}[/]")
        for name, value in section.lines:
            console.print(f"  {name:48}{value}", highlight=False, soft_wrap=True)
        for fault in section.faults:
            console.print(f"  [bold red]wrong[/] {fault}", highlight=False, soft_wrap=True)
    console.print(f"  page: {folder / 'flights.html'}", highlight=False, soft_wrap=True)
    good = all(half.good for half in found)
    console.print("[bold green]PASSED[/]" if good else "[bold red]FAILED[/]")
    return 0 if good else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: whatever was started is ended
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the cluster, the writer and Spark are stopped")
