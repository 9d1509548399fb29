"""A file that an operator changes is read again on a thread, and counts when it has been."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

import pytest

from support.certificates import secret_file
from support.waiting import until
from tallystick.errors import UsageError
from tallystick.runtime import certificates
from tallystick.runtime.machine import this_machine
from tallystick.runtime.watched_text import WatchedText
from tallystick.runtime.worker import ThreadWorker, Worker


async def test_it_says_what_it_said_until_a_thread_has_read_it(tmp_path: Path) -> None:
    path, on_loop, goes_on = secret_file(tmp_path / "users", "one"), list[bool](), threading.Event()
    goes_on.set()

    def parse(text: str, path: str) -> str:
        on_loop.append(threading.current_thread() is threading.main_thread())
        assert goes_on.wait(30)
        return text

    file, changes = WatchedText(path, parse, this_machine(), _unexpected, every_s=0.0), list[str]()
    file.changed = lambda: changes.append(file.value())
    try:
        goes_on.clear()
        secret_file(tmp_path / "users", "one and two")
        assert file.value() == "one"
        secret_file(tmp_path / "users", "one, two and three")
        assert file.value() == "one", "what is read is old already"
        goes_on.set()
        await until(lambda: file.value() == "one, two and three")
        assert on_loop == [True, False, False] and changes == ["one, two and three"]
    finally:
        goes_on.set()
        file.close()


async def test_one_that_is_no_good_says_what_it_said(tmp_path: Path) -> None:
    def parse(text: str, path: str) -> str:
        if "no good" in text:
            raise UsageError("it is no good", path=path)
        return text

    failures = list[str]()
    file = WatchedText(secret_file(tmp_path / "users", "one"), parse, this_machine(), failures.append, every_s=0.0)
    try:
        secret_file(tmp_path / "users", "two, which is no good")
        await until(lambda: file.value() == "one" and bool(failures))
        secret_file(tmp_path / "users", "three, which is good again")
        await until(lambda: file.value() == "three, which is good again")
        assert len(failures) == 1 and "it is no good" in failures[0]
    finally:
        file.close()


async def test_one_that_everybody_could_read_is_read_once_its_mode_is_mended(tmp_path: Path) -> None:
    """The refusal says what to do: who was taken out of the file was let in for good, though it was done."""
    path, failures = secret_file(tmp_path / "users", "one"), list[str]()
    file = WatchedText(path, lambda text, path: text, this_machine(), failures.append, every_s=0.0)
    try:
        secret_file(path, "two", 0o644)
        await until(lambda: file.value() == "one" and bool(failures))
        assert "chmod" in failures[0]
        os.chmod(path, 0o600)
        await until(lambda: file.value() == "two")
    finally:
        file.close()


async def test_one_for_which_there_was_no_thread_is_read_when_there_is_one(tmp_path: Path) -> None:
    """It was taken for one that is being read, for good: users who had been taken away were let in."""
    lacks, outside = [1, 2], this_machine()

    def workers(name: str) -> Worker:
        if lacks:
            lacks.pop()
            raise OSError("too many open files")
        return ThreadWorker(name)

    path = secret_file(tmp_path / "users", "one")
    file = WatchedText(path, lambda text, path: text, replace(outside, workers=workers), _unexpected, every_s=0.0)
    try:
        secret_file(path, "one and two")
        for _ in range(2):
            with pytest.raises(OSError, match="too many open files"):
                file.value()
        await until(lambda: file.value() == "one and two")
    finally:
        file.close()


async def test_one_that_could_not_be_opened_is_read_at_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without descriptors lost the change."""
    path, failures = secret_file(tmp_path / "users", "one"), list[str]()
    file = WatchedText(path, lambda text, path: text, this_machine(), failures.append, every_s=0.0)

    def opens(name: str, mode: str) -> IO[bytes]:
        if not failures:
            raise OSError(errno.EMFILE, "Too many open files")
        return cast("IO[bytes]", open(name, mode))

    try:
        monkeypatch.setattr(certificates, "open", opens, raising=False)
        secret_file(path, "one and two")
        await until(lambda: file.value() == "one and two")
        assert len(failures) == 1 and "Too many open files" in failures[0]
    finally:
        file.close()


async def test_one_that_is_missing_is_told_once(tmp_path: Path) -> None:
    path, failures = secret_file(tmp_path / "users", "one"), list[str]()
    file = WatchedText(path, lambda text, path: text, this_machine(), failures.append, every_s=0.0)
    try:
        os.unlink(path)
        await until(lambda: file.value() == "one" and bool(failures))
        for _ in range(9):
            assert file.value() == "one"
            await asyncio.sleep(0.001)
        assert len(failures) == 1
    finally:
        file.close()


def _unexpected(reason: str) -> None:
    raise AssertionError(reason)
