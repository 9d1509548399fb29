"""Runs of the simulator in processes of their own: a seed must be all that they depend on."""

from __future__ import annotations

import os
import subprocess
import sys


def fingerprints(tier: str, seeds: int) -> list[list[str]]:
    """Of the runs of the first seeds, in three processes that order their sets differently."""
    script = f"from tallystick.sim.{tier} import run; print(*(run(seed).fingerprint for seed in range({seeds})))"
    return [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for hash_seed in (1, 2, 3)
    ]
