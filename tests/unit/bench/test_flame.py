"""What is sampled, and what is said where nothing can be."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flame
import pytest


def test_every_script_that_runs_can_be_drawn() -> None:
    names = flame.benches()
    assert {"ledger", "broker", "starts", "growth", "spark"} <= set(names)
    assert not {"flame", "report", "turns", "summary"} & set(names)


def test_the_bench_runs_with_its_options_or_quickly() -> None:
    command = flame.command_of("py-spy", "ledger", Path("a.svg"), [], idle=False)
    assert command[:2] == ["py-spy", "record"] and "--subprocesses" in command and "--idle" not in command
    assert command[command.index("--output") + 1] == "a.svg"
    assert command[command.index("--") + 1 :] == [sys.executable, str(flame.FOLDER / "ledger.py"), "--quick"]
    assert flame.command_of("py-spy", "growth", Path("a.svg"), ["--topics", "5"], idle=True)[-2:] == ["--topics", "5"]


def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None, *, writes: bool) -> tuple[int, Path]:
    svg = tmp_path / "new" / "a.svg"

    def run(command: list[str], **how: Any) -> Any:
        if writes:
            svg.write_text("<svg/>")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(flame, "sampler", lambda: program)
    monkeypatch.setattr("flame.subprocess.run", run)
    monkeypatch.setattr(sys, "argv", ["flame.py", "--svg", str(svg), "ledger", "--quick"])
    return flame.main(), svg


def test_a_flame_graph_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, svg = drawn(monkeypatch, tmp_path, "py-spy", writes=True)
    assert code == 0 and capsys.readouterr().out == f"{svg}\n"


@pytest.mark.parametrize(("program", "why"), [(None, "py-spy is not installed"), ("py-spy", "nothing was drawn")])
def test_what_hinders_is_said(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    program: str | None,
    why: str,
) -> None:
    code, _ = drawn(monkeypatch, tmp_path, program, writes=False)
    assert code == 1 and why in capsys.readouterr().err
