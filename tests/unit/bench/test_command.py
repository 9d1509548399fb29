"""What every bench does with its options: what cannot be written is said first, and what was measured is shown."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import command
import pytest

from tallystick.errors import UsageError


def measured(quick: bool, **chosen: str) -> dict[str, Any]:
    return {"quick": quick, **chosen}


def never(quick: bool, **chosen: str) -> dict[str, Any]:
    pytest.fail("it was measured")


def run(monkeypatch: pytest.MonkeyPatch, measure: Any, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["some.py", *words])
    return command.run("About.", "quickly", measure, lambda results: "the table", place="some")


def page(folder: Path, place: str = "some") -> Path:
    file = folder / "page.md"
    file.write_text(f"<!-- {place}: begin -->\nold\n<!-- {place}: end -->\n")
    return file


def test_a_report_goes_to_the_screen_a_file_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds, docs = tmp_path / "new" / "some.json", page(tmp_path)
    assert run(monkeypatch, measured, "--quick", "--json", str(rounds), "--docs", str(docs)) == 0
    assert capsys.readouterr().out == "the table\n"
    assert rounds.read_text() == '{\n "quick": true\n}\n'
    assert docs.read_text() == "<!-- some: begin -->\nthe table\n<!-- some: end -->\n"
    assert sorted(os.listdir(tmp_path)) == ["new", "page.md"] and os.listdir(rounds.parent) == ["some.json"]


@pytest.mark.parametrize("place", ["file/some.json", "folder"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, never, "--json", str(tmp_path / place))
    assert str(tmp_path / place.partition("/")[0]) in capsys.readouterr().err


def test_a_page_without_the_place_or_that_is_not_there_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for docs, why in ((page(tmp_path, "other"), "no <!-- some: begin -->"), (tmp_path / "none", "No such file")):
        with pytest.raises(SystemExit, match="2"):
            run(monkeypatch, never, "--docs", str(docs))
        assert why in capsys.readouterr().err


def test_a_run_that_is_stopped_leaves_the_last_report_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = tmp_path / "some.json"
    rounds.write_text("{}")

    def interrupted(quick: bool) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    before = signal.getsignal(signal.SIGTERM)
    assert run(monkeypatch, interrupted, "--json", str(rounds)) == command.INTERRUPTED
    assert signal.getsignal(signal.SIGTERM) is before
    assert rounds.read_text() == "{}" and os.listdir(tmp_path) == ["some.json"]


def test_what_the_machine_lacks_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_java(quick: bool) -> dict[str, Any]:
        raise UsageError("Spark needs Java 17 or newer")

    assert run(monkeypatch, without_java) == 1
    assert capsys.readouterr().err == "some.py: Spark needs Java 17 or newer\n"


def test_a_disk_that_is_full_at_the_end_costs_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = tmp_path / "some.json"
    rounds.write_text("{}")

    def full(file: Path, text: str) -> int:
        with file.open("w") as stream:
            stream.write(text[:3])
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(Path, "write_text", full)
    assert run(monkeypatch, measured, "--json", str(rounds)) == 1
    printed = capsys.readouterr()
    assert printed.out == "the table\n" and "No space left on device" in printed.err
    assert rounds.read_text() == "{}" and os.listdir(tmp_path) == ["some.json"]
