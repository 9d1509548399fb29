"""A shell of its own for each story: the development cluster in a fresh folder, no variable of the user's in sight."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick.admin.dev import DevCluster

COMMAND_TIMEOUT_S = 60


@dataclass(frozen=True)
class Shell:
    """Runs command lines in one folder; ``tally`` is this checkout's."""

    folder: Path
    environment: dict[str, str]

    def run(self, command: str) -> tuple[str, int]:
        """What it prints on both streams, and the exit code."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
        )
        return done.stdout.decode(), done.returncode


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    programs = tmp_path / "programs"
    programs.mkdir()
    tally = programs / "tally"
    tally.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tallystick "$@"\n')
    tally.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    folder = tmp_path / "folder"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TALLY_", "XDG_"))}
    environment = {
        **kept,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "TALLY_DEV_DIR": str(tmp_path / "dev"),
        "COLUMNS": "120",
    }
    yield Shell(folder, environment)
    cluster = DevCluster(str(tmp_path / "dev"))
    if cluster.load() is not None:
        cluster.down()
