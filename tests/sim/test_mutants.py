"""The checks bite: every planted bug is found by its killer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tallystick.errors
from sim.mutants import MUTANTS, Mutant
from sim.mutants_absences import ABSENCE_MUTANTS
from sim.mutants_broker_sinks import BROKER_SINK_MUTANTS
from sim.mutants_brokers import BROKER_MUTANTS
from sim.mutants_compaction import COMPACTION_MUTANTS
from sim.mutants_edges import EDGE_MUTANTS
from sim.mutants_folders import FOLDER_MUTANTS
from sim.mutants_ha import HA_MUTANTS
from sim.mutants_handshakes import HANDSHAKE_MUTANTS
from sim.mutants_lac import LAC_MUTANTS
from sim.mutants_late import LATE_MUTANTS
from sim.mutants_limbo import LIMBO_MUTANTS
from sim.mutants_queues import QUEUE_MUTANTS
from sim.mutants_repair import REPAIR_MUTANTS
from sim.mutants_restored import RESTORED_MUTANTS
from sim.mutants_restores import INDEX_MUTANTS, RESTORE_MUTANTS
from sim.mutants_scrub import SCRUB_MUTANTS
from sim.mutants_shells import SHELL_MUTANTS
from sim.mutants_sinks import SINK_MUTANTS
from sim.mutants_sources import SOURCE_MUTANTS
from sim.mutants_stream_shells import STREAM_SHELL_MUTANTS
from sim.mutants_streams import STREAM_MUTANTS
from sim.mutants_surplus import SURPLUS_MUTANTS
from sim.mutants_v3 import V3_MUTANTS
from support.killers import FOUND, Killers

BOUND_S = 280.0  # of one that hangs
SOURCE = Path(tallystick.errors.__file__).parent
TIERS = {
    "sim broker sinks": "broker_sinks",
    "sim brokers": "brokers",
    "sim cluster": "cluster",
    "sim ha": "ha",
    "sim handshakes": "handshakes",
    "sim metadata": "metadata",
    "sim repairs": "repairs",
    "sim restores": "restores",
    "sim sinks": "sinks",
    "sim storage": "storage",
    "sim storage folders": "storage_folders",
    "sim streams": "streams",
}
ALL = (
    *MUTANTS,
    *LAC_MUTANTS,
    *LATE_MUTANTS,
    *LIMBO_MUTANTS,
    *HA_MUTANTS,
    *QUEUE_MUTANTS,
    *SHELL_MUTANTS,
    *BROKER_MUTANTS,
    *BROKER_SINK_MUTANTS,
    *V3_MUTANTS,
    *STREAM_MUTANTS,
    *STREAM_SHELL_MUTANTS,
    *SINK_MUTANTS,
    *SOURCE_MUTANTS,
    *EDGE_MUTANTS,
    *REPAIR_MUTANTS,
    *COMPACTION_MUTANTS,
    *SCRUB_MUTANTS,
    *FOLDER_MUTANTS,
    *SURPLUS_MUTANTS,
    *ABSENCE_MUTANTS,
    *HANDSHAKE_MUTANTS,
    *RESTORE_MUTANTS,
    *INDEX_MUTANTS,
    *RESTORED_MUTANTS,
)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with its bytecode, made once: compiling it again would take longer than most killers."""
    folder = tmp_path_factory.mktemp("compiled")
    shutil.copytree(SOURCE, folder / "tallystick", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    return folder / "tallystick"


@pytest.fixture(scope="session")
def killers() -> Iterator[Killers]:
    started = Killers()
    yield started
    started.close()


@pytest.fixture(scope="session")
def clean(compiled: Path) -> Iterator[Killers]:
    """Those that look at the package without a bug."""
    started = Killers(*(f"tallystick.sim.{tier}" for tier in TIERS.values()), folder=compiled.parent)
    yield started
    started.close()


def killed(mutant: Mutant, compiled: Path, folder: Path, killers: Killers, clean: Killers) -> bool:
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
    if tier := TIERS.get(mutant.killer):
        seeds = map(str, mutant.seeds())
        code, printed = killers.run("schedules", [tier, mutant.promise, *seeds], folder, BOUND_S)
        if code == FOUND:  # by this bug, and not by what any tree does
            seed = printed.split()[-1]
            clean_code, said = clean.run("schedules", [tier, "", seed], compiled.parent, BOUND_S)
            assert clean_code == 0, f"schedule {seed} of {tier} breaks a promise without a planted bug:\n{said}"
    else:
        code, printed = killers.run("tests", mutant.killer.split(), folder, BOUND_S)
    assert code in (0, FOUND), f"the killer ended with {code}:\n{printed}"
    return code == FOUND


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_mutant_is_killed(mutant: Mutant, compiled: Path, tmp_path: Path, killers: Killers, clean: Killers) -> None:
    assert killed(mutant, compiled, tmp_path, killers, clean), f"nothing noticed: {mutant.name}"


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 12 and len(HA_MUTANTS) >= 10 and len(QUEUE_MUTANTS) >= 10
    assert len(LAC_MUTANTS) >= 12 and len(SHELL_MUTANTS) >= 20 and len(BROKER_MUTANTS) >= 12
    assert len(STREAM_MUTANTS) >= 20 and len(SINK_MUTANTS) >= 12
    assert len(BROKER_SINK_MUTANTS) >= 12 and len(SOURCE_MUTANTS) >= 8
    assert sum(bool(mutant.promise) for mutant in FOLDER_MUTANTS) >= 6
    assert len(V3_MUTANTS) >= 16 and all(mutant.promise for mutant in V3_MUTANTS)
    assert len(RESTORE_MUTANTS) >= 10 and len(INDEX_MUTANTS) >= 10
    assert len(RESTORED_MUTANTS) >= 10 and all(mutant.promise and mutant.likely for mutant in RESTORED_MUTANTS)
    assert len(HANDSHAKE_MUTANTS) >= 12 and all(mutant.promise for mutant in HANDSHAKE_MUTANTS)
    assert len({mutant.name for mutant in ALL}) == len(ALL)
