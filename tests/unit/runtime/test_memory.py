"""Memory that a process frees stays with it, where the C library can be told so."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Pages that a buffer of 200 KB touches when it is taken and freed again and again: all of them each time, or none.
PROGRAM = """
import resource
from tallystick.runtime.memory import keep_freed_memory
assert keep_freed_memory()
for _ in range(20):
    kept = [bytes(200_000) for _ in range(10)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    kept = [bytes(200_000) for _ in range(10)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library: nothing to tell it")
def test_freed_buffers_are_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 2000, "200 rounds of 10 buffers are 98,000 pages"
