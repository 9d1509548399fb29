"""Development clusters of bookies and of brokers, and one local Spark session: each started once for all tests here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from support.spark_sessions import session
from tallystick import sync
from tallystick.admin.dev import DevCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
Write = Callable[..., int]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cells", action="store_true", help="the whole kill matrix, not only CI's part of it")
    parser.addoption("--kill-report", metavar="FILE", help="write the table of the kill matrix there")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    without_java = pytest.mark.skip(reason="no Java on this machine: the Spark tests need Java 17 or newer")
    for item in items:
        if item.get_closest_marker("spark"):
            # A first query takes seconds of CPU: on a busy machine minutes.
            item.add_marker(pytest.mark.timeout(400))
            if shutil.which("java") is None:
                item.add_marker(without_java)


@pytest.fixture(scope="session")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    cluster = DevCluster(str(tmp_path_factory.mktemp("cluster")))
    cluster.up(4)
    yield cluster
    cluster.down()


@pytest.fixture(scope="session")
def uri(bookies: DevCluster) -> str:
    state = bookies.load()
    assert state is not None
    return state.uri


@pytest.fixture(scope="session")
def bk(uri: str) -> Iterator[sync.BookKeeper]:
    with sync.connect(uri) as client:
        yield client


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A name server, ``broker-a``, and its slave, for whom it waits."""
    cluster = DevCluster(str(tmp_path_factory.mktemp("brokers")))
    cluster.up(brokers="1+1")
    yield cluster
    cluster.down()


@pytest.fixture(scope="session")
def name_server(brokers: DevCluster) -> str:
    state = brokers.load()
    assert state is not None and state.name_server is not None
    return state.name_server


@pytest.fixture
def write(bk: sync.BookKeeper) -> Write:
    """Write a closed ledger; its id."""

    def write_ledger(payloads: list[bytes], **settings: Any) -> int:
        with bk.create_ledger(**settings) as writer:
            if payloads:
                writer.append_batch(payloads)
            return writer.id

    return write_ledger


@pytest.fixture(scope="module")
def master() -> str:
    """Where the module's Spark session runs."""
    return "local[2]"


@pytest.fixture(scope="module")
def spark(master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Each module has a session of its own; all live in one JVM, which is started once."""
    with session(master, tmp_path_factory.mktemp("warehouse")) as started:
        yield started


@pytest.fixture
def read(spark: SparkSession, uri: str) -> Read:
    """A data frame of ledgers, with options by name."""

    def read_ledgers(**options: object) -> DataFrame:
        return spark.read.format("tally-ledger").options(uri=uri, **{n: str(v) for n, v in options.items()}).load()

    return read_ledgers


@pytest.fixture
def read_topic(spark: SparkSession, name_server: str) -> Read:
    """A data frame of a topic, with options by name."""

    def read(topic: str, **options: object) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        return spark.read.format("tally-topic").options(nameServer=name_server, subscribe=topic, **texts).load()

    return read
