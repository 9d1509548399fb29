"""What the demo does to the folder that it is given."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from examples.flights import __main__ as demo
from examples.flights.processes import WritingProcess


def test_a_folder_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit, match="name another --out"):
        demo.empty_folder(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_folder_of_an_earlier_run_is_emptied(tmp_path: Path) -> None:
    for _ in range(2):
        demo.empty_folder(tmp_path / "out" / "flights")
        (tmp_path / "out" / "flights" / "flights.html").touch()
    demo.empty_folder(tmp_path / "out" / "flights")
    assert [path.name for path in (tmp_path / "out" / "flights").iterdir()] == [demo.MARK]


def test_too_small_a_disk_is_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 10**9, 5 * 10**7))
    with pytest.raises(SystemExit, match=r"needs 590 MB, and its disk has 50 MB left"):
        demo.check_space(tmp_path, 20_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 0, 10**9))
    demo.check_space(tmp_path, 20_000)


def test_a_disk_that_brokers_would_delete_messages_on_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**10, 8 * 10**9, 2 * 10**9))
    with pytest.raises(SystemExit, match=r"would be 85\.9 % full: above 85 % brokers delete messages"):
        demo.check_space(tmp_path, 20_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**10, 7 * 10**9, 3 * 10**9))
    demo.check_space(tmp_path, 20_000)


@pytest.mark.real_time
def test_a_kill_that_meets_nobody_is_no_fault_to_tell_of(tmp_path: Path) -> None:
    with WritingProcess(tmp_path / "log", "json.tool", "--help") as ended:
        ended.finish()
        with pytest.raises(SystemExit, match="was to be killed, and had ended"):
            ended.kill()
