"""Who runs a command."""

from __future__ import annotations

import os
import socket

import pytest

from tallystick.cli.operators import operator


@pytest.mark.parametrize("error", [OSError, KeyError])
def test_an_account_without_a_name_is_its_number(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def no_name() -> str:
        raise error("no such account")

    monkeypatch.setattr("getpass.getuser", no_name)
    assert operator() == f"{os.getuid()}@{socket.gethostname()}"


def test_who_runs_it_is_named_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "mira")
    assert operator() == f"mira@{socket.gethostname()}"
