"""What is sampled, and what is said where nothing can be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import flame
import pytest


@pytest.fixture
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_every_script_that_runs_can_be_drawn() -> None:
    names = flame.benches()
    assert {"ledger", "broker", "starts", "growth", "spark"} <= set(names)
    assert not {"flame", "report", "turns", "summary"} & set(names)


def test_the_bench_runs_with_its_options_or_quickly() -> None:
    command = flame.command_of("py-spy", "ledger", Path("a.svg"), [], pipe=7, idle=False)
    assert command[:2] == ["py-spy", "record"] and "--subprocesses" in command and "--idle" not in command
    assert command[command.index("--output") + 1] == "a.svg"
    launched = command[command.index("--") + 1 :]
    assert launched[:4] == [sys.executable, "-c", flame.LAUNCHER, "7"]
    assert launched[4:] == [sys.executable, str(flame.FOLDER / "ledger.py"), "--quick"]
    given = flame.command_of("py-spy", "growth", Path("a.svg"), ["--topics", "5"], pipe=7, idle=True)
    assert given[-2:] == ["--topics", "5"] and "--idle" in given


def drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None, *, writes: bool, code: str = "0"
) -> tuple[int, Path]:
    svg = tmp_path / "new" / "a.svg"

    def sampled(command: list[str], writer: int, reader: int) -> str:
        os.close(writer)
        os.close(reader)
        if writes:
            svg.write_text("<svg/>")
        return code

    monkeypatch.setattr(flame, "sampler", lambda: program)
    monkeypatch.setattr(flame, "sampled", sampled)
    monkeypatch.setattr(sys, "argv", ["flame.py", "--svg", str(svg), "ledger", "--quick"])
    return flame.main(), svg


def test_a_flame_graph_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, svg = drawn(monkeypatch, tmp_path, "py-spy", writes=True)
    assert code == 0 and capsys.readouterr().out == f"{svg}\n"


@pytest.mark.parametrize(("code", "how"), [("1", "ended with exit code 1"), ("", "was stopped")])
def test_a_bench_that_failed_or_was_stopped_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, how: str
) -> None:
    ended, svg = drawn(monkeypatch, tmp_path, "py-spy", writes=True, code=code)
    printed = capsys.readouterr()
    assert ended == 1 and printed.out == f"{svg}\n" and f"the bench {how}" in printed.err


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_the_bench_comes_through_the_sampler(code: int, _signals: None, tmp_path: Path) -> None:
    sampler = tmp_path / "sampler"
    sampler.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; "$@"\n')
    sampler.chmod(0o755)
    reader, writer = os.pipe()
    command = flame.command_of(str(sampler), "none", tmp_path / "a.svg", [], pipe=writer, idle=False)
    bench = ["-c", f"raise SystemExit({code})"]
    assert flame.sampled([*command[: command.index("-c") + 3], sys.executable, *bench], writer, reader) == str(code)


def test_a_bench_that_is_stopped_by_ctrl_c_ends_in_its_own_time() -> None:
    """All processes of a terminal get the signal."""
    bench = """
import signal
try:
    print("runs", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("stops its servers", flush=True)
    raise SystemExit(130)
"""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", flame.LAUNCHER, str(writer), sys.executable, "-c", bench]
    with (
        subprocess.Popen(
            command, pass_fds=[writer], start_new_session=True, stdout=subprocess.PIPE, text=True
        ) as launcher,
        os.fdopen(reader) as codes,
    ):
        os.close(writer)
        assert launcher.stdout is not None and launcher.stdout.readline() == "runs\n"
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.stdout.read() == "stops its servers\n" and codes.read() == "130"


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
