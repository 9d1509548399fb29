"""Which Java is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.java import end_children, java_command, java_version


def java(folder: Path) -> Path:
    folder.mkdir(parents=True)
    command = folder / "java"
    command.touch(mode=0o755)
    return command


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    on_path, at_home = java(tmp_path / "path"), java(tmp_path / "home" / "bin")
    path = {"PATH": str(on_path.parent)}
    assert java_command(path) == java_command({**path, "JAVA_HOME": ""}) == str(on_path)
    assert java_command({**path, "JAVA_HOME": str(tmp_path / "home")}) == str(at_home)


def test_a_java_that_lacks_is_said(tmp_path: Path) -> None:
    on_path = java(tmp_path / "path")
    with pytest.raises(UsageError, match="JAVA_HOME has no bin/java"):
        java_command({"PATH": str(on_path.parent), "JAVA_HOME": str(tmp_path)})
    with pytest.raises(UsageError, match="install it, or set JAVA_HOME"):
        java_command({"PATH": str(tmp_path)})


def test_a_java_that_spark_cannot_run_on_is_said(tmp_path: Path) -> None:
    command = java(tmp_path / "bin")
    for line, text in (
        ('openjdk version "11.0.2" 2019-01-15', "is 11: Spark needs Java 17 or newer"),
        ('java version "1.8.0_292"', "is 8: Spark needs"),
        ("nonsense", "does not say its version: Spark needs"),
    ):
        command.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
        with pytest.raises(UsageError, match=f"{command} {text}"):
            java_version(str(command))
    command.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    assert java_version(str(command)) == 21
    with pytest.raises(UsageError, match="does not run"):
        java_version(str(tmp_path / "absent"))


def test_what_an_interrupted_function_had_started_is_ended(tmp_path: Path) -> None:
    running = [sys.executable, "-c", "input()"]
    kept = subprocess.Popen(running, stdin=subprocess.PIPE)
    starting: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command, stdin=subprocess.PIPE)
            starting.append(self)
            raise KeyboardInterrupt

    def launch() -> None:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        started = subprocess.Popen(running, stdin=subprocess.PIPE)
        starting.append(started)
        Interrupted(running)

    try:
        with pytest.raises(KeyboardInterrupt) as interrupt:
            launch()
        end_children(interrupt.value)
        assert [each.returncode for each in starting] == [-9, -9] and kept.poll() is None
        with pytest.raises(OSError) as failed:
            subprocess.Popen([str(tmp_path / "absent")])  # it never had a number
        end_children(failed.value)
    finally:
        for each in (kept, *starting):
            each.kill()
            each.communicate()
