"""The kill matrix: a query with the exactly-once sink, and what dies or hangs around it at each moment of a batch.

After each cell the stream has every row of its source once, each batch as a whole and in order, and no ledger is left
that is in no list. ``--all-cells`` runs them all, ``--kill-report docs/kill-matrix.md`` renews
their rows of the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import kill_cells, kill_sources
from support.following_topics import rows_of_topic
from support.kill_cells import CELLS, Cell, write_table
from support.kill_sources import Source
from support.moments import COMMITTED, FOLDER, PATIENCE_S, Moments, Reached
from support.moments_driver import ROWS_A_BATCH, Job
from support.promotion import Promotion, own_pair
from support.spark_cluster import SparkCluster, running
from support.topics import BROKER, make_topic
from support.zookeeper import missing
from support.zookeeper_bookies import LONGEST_SESSION_S, ZooKeeperBookies
from support.zookeeper_bookies import running as zookeeper_bookies_running
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.admin.process import ProcessState

pytestmark = [pytest.mark.spark, pytest.mark.rule("Q18")]

BATCHES, HIT = 5, 2  # of the first run; the batch in which it happens
HANG_S = 2.0
BOOKIE = "bookie-1"
WIDE = 200_000  # bytes of a row: four of them are more than a task hands to the driver
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture(scope="module")
def zookeeper_bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperBookies]:
    if reason := missing():
        pytest.skip(f"no ZooKeeper server here: {reason}")
    with zookeeper_bookies_running(tmp_path_factory.mktemp("zookeeper-bookies")) as started:
        yield started


@pytest.fixture(scope="module")
def zookeeper_bk(zookeeper_bookies: ZooKeeperBookies) -> Iterator[sync.BookKeeper]:
    with sync.connect(zookeeper_bookies.uri) as client:
        yield client


@pytest.fixture
def promotion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Promotion]:
    with own_pair(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


class Matrix:
    """One cell: the driver, and the moment at which it waits; ``peers`` gives whom it harms, by a fixture's name."""

    def __init__(self, cell: Cell, job: Job, bk: sync.BookKeeper, peers: Callable[[str], Any]) -> None:
        self.cell, self.job, self.bk, self.peers = cell, job, bk, peers
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
def seconds(request: pytest.FixtureRequest) -> Iterator[dict[Cell, float | None]]:
    """How long each cell took, None of one that failed: the table, if one is wanted."""
    taken: dict[Cell, float | None] = {}
    yield taken
    if path := request.config.getoption("--kill-report", None):
        write_table(Path(path), taken)


def test_each_row_is_stored_once_whatever_dies(
    cell: Cell, tmp_path: Path, request: pytest.FixtureRequest, seconds: dict[Cell, float | None]
) -> None:
    started, seconds[cell] = time.monotonic(), None
    matrix = _matrix(cell, str(tmp_path), request.getfixturevalue)
    with _source(matrix) as source:
        matrix.moments.want(matrix.moment)
        if matrix.job.speculates:
            matrix.moments.want(f"{COMMITTED}.{HIT}")
        with matrix.driver(matrix.job) as process:
            reached = matrix.moments.wait(matrix.moment, process.poll)
            try:
                _do(matrix, reached, process, source)
                matrix.moments.go(matrix.moment, fail=cell.deed == kill_cells.FAIL)
                _undo_soon(matrix)
                code = process.wait(PATIENCE_S)
            finally:
                _undo(matrix)
        assert (code == 0) == cell.goes_on, matrix.job.error
        if cell.deed == kill_cells.SUCCESSOR:
            assert source.wake_owner() == "StreamFenced"
        if not cell.goes_on or source.owner is not None:
            source.grow()
            assert matrix.again() == 0, matrix.job.error
    _compare(matrix, source.count)
    seconds[cell] = time.monotonic() - started


def _matrix(cell: Cell, folder: str, peers: Callable[[str], Any]) -> Matrix:
    """The cell's job: between which peers, on which master of Spark's."""
    on_zookeeper = cell.deed in kill_cells.ON_ZOOKEEPER
    bk: sync.BookKeeper = peers("zookeeper_bk" if on_zookeeper else "bk")
    uri: str = peers("zookeeper_bookies").uri if on_zookeeper else peers("uri")
    name = f"kills/cell{CELLS.index(cell)}/persistent"
    job = Job(uri, f"{name}/in", f"{name}/out", folder, speculates=cell.deed == kill_cells.SPECULATE)
    job = replace(job, master=peers("cluster").master if cell.master == kill_cells.CLUSTER else cell.master)
    if cell.topic or cell.deed in (kill_cells.MASTER, kill_cells.PROMOTION):
        topic = f"kills-{CELLS.index(cell)}"
        if cell.deed == kill_cells.PROMOTION:
            promotion: Promotion = peers("promotion")
            name_server = promotion.name_server
            promotion.has_topic(topic)
        else:
            name_server = peers("name_server")
            make_topic(name_server, topic)
        if cell.topic:
            job = replace(job, sink=topic, sink_name_server=name_server)
        else:
            job = replace(job, source=topic, name_server=name_server)
    return Matrix(cell, job, bk, peers)


def _source(matrix: Matrix) -> AbstractContextManager[Source]:
    cell, job, bk = matrix.cell, matrix.job, matrix.bk
    count, width = BATCHES * ROWS_A_BATCH, 10 if cell.few else WIDE
    if job.name_server:
        return kill_sources.topic(job, count, width)
    if cell.deed in (kill_cells.OWNER, kill_cells.SUCCESSOR):
        return kill_sources.owned_stream(bk, job, count, width)
    if cell.deed in kill_cells.ON_ZOOKEEPER:
        return kill_sources.free_stream(bk, job, count, width)
    return kill_sources.stream(bk, job, count, width)


def _do(matrix: Matrix, reached: Reached, process: subprocess.Popen[bytes], source: Source) -> None:
    """Do to the query, or around it, what the cell says."""
    match matrix.cell.deed:
        case kill_cells.DIE:
            os.kill(reached.pid, signal.SIGKILL)
        case kill_cells.EXECUTOR:
            os.kill(reached.jvm, signal.SIGKILL)
        case kill_cells.HANG:
            os.kill(reached.pid, signal.SIGSTOP)
            time.sleep(HANG_S)
            os.kill(reached.pid, signal.SIGCONT)
        case kill_cells.SPECULATE:
            # The batch can only be committed with another attempt: this one waits until that is done.
            committed = f"{COMMITTED}.{HIT}"
            matrix.moments.wait(committed, process.poll)
            matrix.moments.go(committed)
        case kill_cells.DRIVER:
            os.killpg(process.pid, signal.SIGKILL)
        case kill_cells.NEW_CHECKPOINT:
            os.killpg(process.pid, signal.SIGKILL)
            assert matrix.again(checkpoint="another") == 1 and "[TALLY-CHECKPOINT-LOST]" in matrix.job.error
        case kill_cells.RIVAL:
            os.killpg(process.pid, signal.SIGSTOP)
            assert matrix.again() == 0, matrix.job.error
            os.killpg(process.pid, signal.SIGCONT)
        case _:
            _do_around(matrix, reached, source)


def _do_around(matrix: Matrix, reached: Reached, source: Source) -> None:
    match matrix.cell.deed:
        case kill_cells.OWNER:
            source.kill_owner()
        case kill_cells.SUCCESSOR:
            source.pause_owner()
            source.grow()
        case kill_cells.MASTER | kill_cells.SINK_MASTER:
            matrix.peers("brokers").kill([BROKER])
        case kill_cells.SINK_MASTER_HANGS:
            matrix.peers("brokers").pause([BROKER])
        case kill_cells.PROMOTION:
            # What is sent waits for a master; who reads wants one.
            own_topic = matrix.job.sink if matrix.cell.topic else matrix.job.source
            matrix.peers("promotion").promote(own_topic, wait=not matrix.cell.topic)
        case kill_cells.BOOKIE:
            matrix.peers("bookies").kill([BOOKIE])
        case kill_cells.BOOKIE_HANGS:
            matrix.peers("bookies").pause([BOOKIE])
        case kill_cells.EXPIRE:
            matrix.peers("zookeeper_bookies").expire(reached.pid)
        case kill_cells.ZOOKEEPER | kill_cells.ZOOKEEPER_GONE:
            matrix.peers("zookeeper_bookies").server.stop()
        case kill_cells.ZOOKEEPER_HANGS:
            matrix.peers("zookeeper_bookies").server.pause()


def _undo_soon(matrix: Matrix) -> None:
    """Start what the query waits for, a while after it has gone on, or let it run."""
    match matrix.cell.deed:
        case kill_cells.ZOOKEEPER | kill_cells.SINK_MASTER | kill_cells.SINK_MASTER_HANGS:
            time.sleep(HANG_S)
            _undo(matrix)
        case kill_cells.ZOOKEEPER_HANGS:
            time.sleep(LONGEST_SESSION_S + HANG_S)
            _undo(matrix)


def _undo(matrix: Matrix) -> None:
    """Start what was killed, or let it run; what runs already is left alone."""
    match matrix.cell.deed:
        case kill_cells.MASTER | kill_cells.SINK_MASTER | kill_cells.SINK_MASTER_HANGS:
            _run(matrix.peers("brokers"), BROKER)
        case kill_cells.BOOKIE | kill_cells.BOOKIE_HANGS:
            _run(matrix.peers("bookies"), BOOKIE)
        case kill_cells.ZOOKEEPER | kill_cells.ZOOKEEPER_HANGS | kill_cells.ZOOKEEPER_GONE:
            matrix.peers("zookeeper_bookies").server.revive()


def _run(cluster: DevCluster, node: str) -> None:
    match next(status.state for status in cluster.status() if status.id == node):
        case ProcessState.PAUSED:
            cluster.resume([node])
        case ProcessState.DEAD:
            cluster.restart([node])


def _compare(matrix: Matrix, count: int) -> None:
    """Each row once, each batch as a whole, rows of a ledger in their order, and no ledger that is nowhere listed."""
    job, bk = matrix.job, matrix.bk
    if matrix.cell.topic:
        bk.delete_stream(job.source, takeover=True)
        assert sorted(int(row[:5]) for row in asyncio.run(rows_of_topic(job.sink_name_server, job.sink))) == list(
            range(count)
        )
        return
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
