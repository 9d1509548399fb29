from __future__ import annotations

import random

from tallystick.errors import StorageError
from tallystick.sim.failing_disk import FAILING_DISK, DiskFailure, with_failing_disks

STRIKES = ((1.0, "kill"), (2.0, "stop"))


def test_the_seed_alone_says_which_lives_have_failing_disks_and_when() -> None:
    lives = {seed: with_failing_disks(seed, STRIKES, 4.0) for seed in range(110)}
    assert lives == {seed: with_failing_disks(seed, STRIKES, 4.0) for seed in range(110)}
    assert {seed % 11 for seed, strikes in lives.items() if strikes != STRIKES} == {3, 7}
    for strikes in lives.values():
        assert set(STRIKES) <= set(strikes) and list(strikes) == sorted(strikes)
        assert all(0 <= moment <= 4.0 and what == FAILING_DISK for moment, what in set(strikes) - set(STRIKES))


def test_a_disk_refuses_a_share_of_some_operations_and_tells_that_it_did() -> None:
    refused = set[str]()
    for seed in range(50):
        failure = DiskFailure(random.Random(seed))
        errors = [(name, failure(name, "/file")) for name in ("sync", "write", "read", "stat") * 20]
        names = {name for name, error in errors if isinstance(error, StorageError)}
        assert failure.happened is bool(names)
        refused |= names
    assert refused == {"sync", "write", "read"}
