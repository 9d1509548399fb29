"""The checks bite: every planted bug is found by its killer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tallystick.errors
from sim.mutants import MUTANTS, Mutant
from sim.mutants_brokers import BROKER_MUTANTS
from sim.mutants_ha import HA_MUTANTS
from sim.mutants_queues import QUEUE_MUTANTS
from sim.mutants_shells import SHELL_MUTANTS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(tallystick.errors.__file__).parent
SIM = (
    "import sys; from tallystick.sim import {0} as tier; from tallystick.sim.series import run_many; "
    "sys.exit({2} if run_many(tier.run, range({1}), stop_at=1).failed else 0)"
)
FOUND = 3  # a broken promise; 1 would also be any exception
TIERS = {
    "sim brokers": "brokers", "sim cluster": "cluster", "sim ha": "ha", "sim metadata": "metadata",
    "sim storage": "storage",
}  # fmt: skip
ALL = (*MUTANTS, *HA_MUTANTS, *QUEUE_MUTANTS, *SHELL_MUTANTS, *BROKER_MUTANTS)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with its bytecode, made once: compiling it again would take longer than most killers."""
    folder = tmp_path_factory.mktemp("compiled")
    shutil.copytree(SOURCE, folder / "tallystick", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    where = subprocess.run(
        [sys.executable, "-c", "import tallystick.errors; print(tallystick.errors.__file__)"],
        env=environment(folder), capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    assert where.startswith(str(folder)), f"the copy is not what runs: {where}"
    return folder / "tallystick"


def environment(folder: Path) -> dict[str, str]:
    """Of a process that runs the copy of the package in ``folder``."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def killed(mutant: Mutant, compiled: Path, folder: Path) -> bool:
    """Whether the killer fails on a copy of the package that has the bug."""
    package = folder / "tallystick"
    shutil.copytree(compiled, package, copy_function=os.link)
    module = package / mutant.module
    text = module.read_text()
    assert text.count(mutant.old) == 1, (
        f"{mutant.module} has {text.count(mutant.old)} places like this; mend the mutant"
    )
    module.unlink()  # or the bug would be in all copies: their files are one
    module.write_text(text.replace(mutant.old, mutant.new))
    command = (
        [sys.executable, "-c", SIM.format(TIERS[mutant.killer], mutant.schedules, FOUND)]
        if mutant.killer in TIERS
        else [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.killer.split()]
    )
    done = subprocess.run(command, env=environment(folder), cwd=ROOT, capture_output=True, text=True, timeout=280)
    found = FOUND if mutant.killer in TIERS else 1
    assert done.returncode in (0, found), done.stdout + done.stderr
    return done.returncode == found


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_mutant_is_killed(mutant: Mutant, compiled: Path, tmp_path: Path) -> None:
    assert killed(mutant, compiled, tmp_path), f"nothing noticed: {mutant.name}"


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 12 and len(HA_MUTANTS) >= 10 and len(QUEUE_MUTANTS) >= 10
    assert len(SHELL_MUTANTS) >= 20 and len(BROKER_MUTANTS) >= 12
    assert len({mutant.name for mutant in ALL}) == len(ALL)
