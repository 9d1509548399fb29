"""Which Java is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.java import java_command


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
