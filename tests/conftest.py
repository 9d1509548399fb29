"""What tests of several packages share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping

import hypothesis
import pytest

from support import reaper
from support.machines import REAL_TIME, LoopFactory
from support.zookeeper import missing, running

# A busy machine is no failure; a failing example is printed with what reproduces it.
hypothesis.settings.register_profile("tallystick", deadline=None, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=20)  # of `make quick`
# Of killers of planted bugs: that a test fails is enough, and the smallest example is found by much more work.
hypothesis.settings.register_profile(
    "killer", deadline=None, database=None, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tallystick"))


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
