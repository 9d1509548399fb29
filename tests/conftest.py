"""What tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from support import reaper
from support.zookeeper import missing, running

# A busy machine is no failure; a failing example is printed with what reproduces it.
hypothesis.settings.register_profile("tallystick", deadline=None, print_blob=True)
hypothesis.settings.load_profile("tallystick")


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Bookies and servers of tests die with the run, however it ends."""
    with reaper.watching():
        yield


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a real ZooKeeper server; use a root of your own in it."""
    reason = missing()
    if reason:
        pytest.skip(f"no ZooKeeper server here: {reason}")
    with running(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.address
