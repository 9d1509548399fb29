"""Which Java is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.java import java_command, java_version


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
