"""What is said where no wheel can be made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import wheels


def test_an_index_that_is_out_of_reach_is_said_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(folder: Path) -> str:
        raise subprocess.CalledProcessError(1, ["pip", "install", "ziglang"])

    monkeypatch.setattr(wheels, "make_environment", unreachable)
    assert wheels.main(["--out", str(tmp_path / "dist")]) == 1
    printed = capsys.readouterr().err
    assert "ziglang>=0.13: they come from pip's index" in printed and "python3-venv" in printed
    assert not list(tmp_path.iterdir())
