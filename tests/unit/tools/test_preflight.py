"""What `make demo` says on a machine that lacks something."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "preflight.py"


def java(folder: Path, says: str) -> Path:
    """A `java` that prints a version as the real one does, to stderr."""
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    script.chmod(0o755)
    return folder


def preflight(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), "python", "java"], env={"PATH": f"{path}"}, capture_output=True, text=True
    )


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19'])
def test_java_17_and_newer_pass(tmp_path: Path, says: str) -> None:
    found = preflight(java(tmp_path, says))
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("says", ['java version "1.8.0_292"', 'openjdk version "11.0.2" 2019-01-15', "nonsense"])
def test_an_old_or_unknown_java_is_named(tmp_path: Path, says: str) -> None:
    found = preflight(java(tmp_path, says))
    assert found.returncode == 1
    assert "Java 17 or newer is needed" in found.stderr
    assert str(tmp_path / "java") in found.stderr


def test_an_older_python_comes_as_far_as_the_check_that_refuses_it() -> None:
    """The names that annotations have are looked up by none, and the grammar is that of 3.7."""
    parsed = ast.parse(TOOL.read_text(), feature_version=(3, 7))
    first = next(node for node in parsed.body if isinstance(node, ast.ImportFrom))
    assert (first.module, [name.name for name in first.names]) == ("__future__", ["annotations"])


def test_no_java_says_what_to_do(tmp_path: Path) -> None:
    found = preflight(tmp_path)
    assert found.returncode == 1
    assert "Install a JDK" in found.stderr
