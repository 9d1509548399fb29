"""Chance from outside."""

from __future__ import annotations

import os
import random

import pytest

from support.forking import in_child
from tallystick.runtime.rng import system_random


def test_a_forked_child_draws_other_numbers() -> None:
    reader, writer = os.pipe()
    assert in_child(lambda: os.write(writer, b"%d" % system_random().getrandbits(64))) == 0
    assert int(os.read(reader, 100)) != system_random().getrandbits(64)
    os.close(reader)
    os.close(writer)


def test_chance_is_not_asked_of_the_system_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call gives the interpreter to other threads, and thousands of placements wait for it."""

    def refused(size: int) -> bytes:
        raise AssertionError("the system was asked")

    monkeypatch.setattr(random, "_urandom", refused)
    assert len(system_random().sample(range(10), 3)) == 3
    assert system_random().getrandbits(64) >= 0
