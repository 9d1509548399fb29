"""The kill matrix: a query with the exactly-once sink, and what dies or hangs around it at each moment of a batch.

After each cell the stream has every row of its source once, each batch as a whole and in order, and no ledger is left
that is in no list. ``--all-cells`` runs them all, ``--kill-report docs/kill-matrix.md`` renews the table.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support import kill_cells
from support.kill_cells import CELLS, Cell, write_table
from support.moments import FOLDER, PATIENCE_S, Moments, Reached
from support.moments_driver import ROWS_A_BATCH, Job
from support.spark_cluster import SparkCluster, running
from support.topics import BROKER, make_topic, send
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.rocketmq.wire.record import Message

pytestmark = [pytest.mark.spark, pytest.mark.rule("Q18")]

BATCHES, HIT = 5, 2  # of the first run; the batch in which it happens
MORE = 10  # rows that come behind it
HANG_S = 2.0
WIDE = 200_000  # bytes of a row: four of them are more than a task hands to the driver
TESTS = Path(__file__).resolve().parents[1]
OWNER = """
import sys, time
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
with sync.connect(sys.argv[1]) as bk:
    stream = bk.open_stream(sys.argv[2], settings=StreamSettings(max_entries_per_ledger=40))
    for number in range(int(sys.argv[3])):
        stream.append(b"%05d" % number + b"x" * int(sys.argv[4]))
    print("stored", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running(tmp_path_factory.mktemp("spark")) as started:
        yield started


class Matrix:
    """One cell: its source, the driver, and the moment at which it waits."""

    def __init__(self, cell: Cell, job: Job, bk: sync.BookKeeper) -> None:
        self.cell, self.job, self.bk = cell, job, bk
        self.moments = Moments(Path(job.folder) / "moments")
        self.moment = f"{cell.moment}.{HIT}"
        self.before = set(bk.ledgers())

    @contextlib.contextmanager
    def driver(self, job: Job) -> Iterator[subprocess.Popen[bytes]]:
        path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
        environment = {**os.environ, "PYTHONPATH": path, FOLDER: str(self.moments.folder)}
        process = subprocess.Popen(job.command(), start_new_session=True, env=environment)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its JVM and Python workers, too
            process.wait()

    def again(self, checkpoint: str = "checkpoint") -> int:
        """Start the query once more, on other cores; what it ends with."""
        with self.driver(replace(self.job, master="local[3]", checkpoint=checkpoint)) as process:
            return process.wait(PATIENCE_S)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cells = [cell for cell in CELLS if cell.in_ci or metafunc.config.getoption("--all-cells", False)]
    metafunc.parametrize("cell", cells, ids=lambda cell: cell.id)


@pytest.fixture(scope="module")
def seconds(request: pytest.FixtureRequest) -> Iterator[dict[Cell, float]]:
    """How long each cell took that has passed: the table, if one is wanted."""
    passed: dict[Cell, float] = {}
    yield passed
    if path := request.config.getoption("--kill-report", None):
        write_table(Path(path), passed)


def test_each_row_is_stored_once_whatever_dies(
    cell: Cell,
    bk: sync.BookKeeper,
    uri: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    seconds: dict[Cell, float],
) -> None:
    started = time.monotonic()
    name = f"kills/cell{CELLS.index(cell)}/persistent"
    job = Job(uri, f"{name}/in", f"{name}/out", str(tmp_path))
    matrix = Matrix(cell, _placed(job, cell, request), bk)
    count, width = BATCHES * ROWS_A_BATCH, 10 if cell.few else WIDE
    with _source(matrix, count, width, request) as (owner, publish):
        matrix.moments.want(matrix.moment)
        with matrix.driver(matrix.job) as process:
            reached = matrix.moments.wait(matrix.moment, process.poll)
            try:
                _do(matrix, reached, process, owner, request)
                code = process.wait(PATIENCE_S)
            finally:
                _revive(cell, request)
        assert (code == 0) == cell.goes_on, matrix.job.error
        if not cell.goes_on or owner is not None:
            publish(range(count, count + MORE))
            assert matrix.again() == 0, matrix.job.error
            count += MORE
    _compare(matrix, count)
    seconds[cell] = time.monotonic() - started


def _placed(job: Job, cell: Cell, request: pytest.FixtureRequest) -> Job:
    """The job on the cell's master, with Spark's settings for it."""
    if cell.master != kill_cells.CLUSTER:
        job = replace(job, master=cell.master)
    else:
        cluster: SparkCluster = request.getfixturevalue("cluster")
        job = replace(job, master=cluster.master)
    if cell.deed == kill_cells.MASTER:
        job = replace(job, source=f"kills-{cell.moment}", name_server=request.getfixturevalue("name_server"))
    return job


Publish = Callable[[range], None]


@contextlib.contextmanager
def _source(
    matrix: Matrix, count: int, width: int, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[str] | None, Publish]]:
    """What the query copies: with so many rows, and what appends more; its owner, if that is a process of its own."""
    job, bk = matrix.job, matrix.bk
    if job.name_server:
        make_topic(job.name_server, job.source)
        with sync.topics(job.name_server) as mq:
            _send(mq, job.source, range(count), width)
            yield None, lambda numbers: _send(mq, job.source, numbers, width)
        return
    if matrix.cell.deed == kill_cells.OWNER:
        command = [sys.executable, "-c", OWNER, job.uri, job.source, str(count), str(width)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
            try:
                assert owner.stdout is not None and owner.stdout.readline() == "stored\n"
                yield owner, lambda numbers: _take_over(matrix, numbers, width)
            finally:
                owner.kill()
        return
    with bk.open_stream(job.source, settings=StreamSettings(max_entries_per_ledger=40)) as stream:

        def append(numbers: range) -> None:
            for number in numbers:
                stream.append(_row(number, width))

        append(range(count))
        yield None, append


def _row(number: int, width: int) -> bytes:
    return b"%05d" % number + b"x" * width


def _send(mq: sync.RocketMQ, topic: str, numbers: range, width: int) -> None:
    for start in range(numbers.start, numbers.stop, 10):
        send(mq, topic, [Message(topic, _row(number, width)) for number in range(start, min(start + 10, numbers.stop))])


def _take_over(matrix: Matrix, numbers: range, width: int) -> None:
    with matrix.bk.open_stream(matrix.job.source, takeover=True) as stream:
        for number in numbers:
            stream.append(_row(number, width))


def _do(
    matrix: Matrix,
    reached: Reached,
    process: subprocess.Popen[bytes],
    owner: subprocess.Popen[str] | None,
    request: pytest.FixtureRequest,
) -> None:
    """Do to the query, or around it, what the cell says; then it goes on, if it can."""
    deed = matrix.cell.deed
    match deed:
        case kill_cells.DIE:
            os.kill(reached.pid, signal.SIGKILL)
        case kill_cells.EXECUTOR:
            os.kill(reached.jvm, signal.SIGKILL)
        case kill_cells.HANG:
            os.kill(reached.pid, signal.SIGSTOP)
            time.sleep(HANG_S)
            os.kill(reached.pid, signal.SIGCONT)
        case kill_cells.DRIVER:
            os.killpg(process.pid, signal.SIGKILL)
        case kill_cells.NEW_CHECKPOINT:
            os.killpg(process.pid, signal.SIGKILL)
            assert matrix.again(checkpoint="another") == 1 and "[TALLY-CHECKPOINT-LOST]" in matrix.job.error
        case kill_cells.RIVAL:
            os.killpg(process.pid, signal.SIGSTOP)
            assert matrix.again() == 0, matrix.job.error
            os.killpg(process.pid, signal.SIGCONT)
        case kill_cells.OWNER:
            assert owner is not None
            owner.kill()
        case kill_cells.MASTER:
            request.getfixturevalue("brokers").kill([BROKER])
        case kill_cells.BOOKIE:
            request.getfixturevalue("bookies").kill(["bookie-1"])
        case kill_cells.BOOKIE_HANGS:
            request.getfixturevalue("bookies").pause(["bookie-1"])
    matrix.moments.go(matrix.moment, fail=deed == kill_cells.FAIL)


def _revive(cell: Cell, request: pytest.FixtureRequest) -> None:
    """Start what was killed, or let it run."""
    match cell.deed:
        case kill_cells.MASTER:
            brokers: DevCluster = request.getfixturevalue("brokers")
            brokers.restart([BROKER])
        case kill_cells.BOOKIE | kill_cells.BOOKIE_HANGS:
            bookies: DevCluster = request.getfixturevalue("bookies")
            if cell.deed == kill_cells.BOOKIE:
                bookies.restart(["bookie-1"])
            else:
                bookies.resume(["bookie-1"])


def _compare(matrix: Matrix, count: int) -> None:
    """Each row once, each batch as a whole, rows of a ledger in their order, and no ledger that is nowhere listed."""
    job, bk = matrix.job, matrix.bk
    with bk.read_stream(job.sink) as reader:
        rows = [(message.position.ledger, int(message.data[:5])) for message in reader.read()]
    numbers = [number for _, number in rows]
    assert sorted(numbers) == list(range(count))
    if not job.name_server:
        for start in range(0, count, ROWS_A_BATCH):
            batch = numbers[start : start + ROWS_A_BATCH]
            assert sorted(batch) == list(range(start, start + len(batch))), "a batch is whole, and before the next one"
        for ledger in {ledger for ledger, _ in rows}:
            of_ledger = [number for one, number in rows if one == ledger]
            assert of_ledger == sorted(of_ledger)
    bk.sweep_sinks(job.sink)
    bk.delete_stream(job.sink)
    if not job.name_server:
        bk.delete_stream(job.source, takeover=True)
    assert set(bk.ledgers()) <= matrix.before, "nothing is left that no list has"
