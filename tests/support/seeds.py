"""Where random tests begin in CI: a commit has always the same schedules, and every other tree has others.

Elsewhere each run has new ones. Run as a program this prints the seed of the tree, for ``make sim``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_CI = "CI" in os.environ
WITHOUT_GIT = 1


@functools.cache
def tree_seed(root: Path = ROOT) -> int:
    """The first 32 bits of the name of the commit's tree; ``WITHOUT_GIT`` where nobody knows that."""
    command = ("git", "rev-parse", "--verify", "--quiet", "HEAD^{tree}")
    try:
        tree = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return WITHOUT_GIT
    return int(tree[:8], 16)


def seed_of(test: str) -> int:
    """The seed of one test of the tree, of 32 bits: no two search the same schedules."""
    return int.from_bytes(hashlib.blake2b(f"{tree_seed()} {test}".encode(), digest_size=4).digest(), "big")


if __name__ == "__main__":
    print(tree_seed())
