"""What tests of several packages share."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator, Mapping

import hypothesis
import pytest

from support import reaper
from support.machines import REAL_TIME, LoopFactory
from support.seeds import IN_CI, seed_of
from support.zookeeper import missing, running

# A busy machine is no failure; a failing example is printed with what reproduces it.
hypothesis.settings.register_profile("tallystick", deadline=None, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=20)  # of `make quick`
# Of killers of planted bugs: that a test fails is enough, and the smallest example is found by much more work.
hypothesis.settings.register_profile(
    "killer", deadline=None, database=None, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
)
# A commit has the same examples in each of its runs. (Hypothesis's own profile of this name is replaced.)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, database=None, derandomize=True)
# Of suites that run again with the codec in Python.
hypothesis.settings.register_profile("pure", hypothesis.settings.get_profile("ci"), max_examples=20)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "tallystick"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """In CI the seeds that a test draws by ``random`` are those of the commit."""
    if IN_CI:
        random.seed(seed_of(item.nodeid))


def pytest_asyncio_loop_factories() -> Mapping[str, LoopFactory]:
    """Tests run in real time, but where a folder says otherwise."""
    return REAL_TIME


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Bookies and servers of tests die with the run, however it ends."""
    with reaper.watching():
        yield


@pytest.fixture
def house_logger() -> Iterator[logging.Logger]:
    """The logger of the package, which a server's process configures; left as it was."""
    logger = logging.getLogger("tallystick")
    handlers, level, propagate = logger.handlers, logger.level, logger.propagate
    yield logger
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a real ZooKeeper server; use a root of your own in it."""
    reason = missing()
    if reason:
        pytest.skip(f"no ZooKeeper server here: {reason}")
    with running(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.address
