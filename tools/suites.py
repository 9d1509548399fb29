"""Run the checks and the test suites one after another; print the time of each; fail when one fails or has no test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Suite:
    name: str
    command: tuple[str, ...]


def pytest(name: str, *arguments: str) -> Suite:
    return Suite(name, (str(BIN / "pytest"), "-q", "--durations=3", *arguments))


SUITES = (
    Suite("check", ("make", "--no-print-directory", "check")),
    pytest("unit", "tests/unit", "-n", "2"),
    pytest("wire", "tests/wire"),
    pytest("conformance", "tests/conformance"),
    pytest("scenarios", "tests/scenarios"),
    pytest("sim", "tests/sim", "-n", "2"),
    Suite("sim-minute", ("make", "--no-print-directory", "sim")),
    pytest("spark", "tests/spark"),
    pytest("interop", "tests/interop", "--ignore", "tests/interop/rocketmq"),
    pytest("interop-rocketmq", "tests/interop/rocketmq", "-n", "2", "--dist", "loadscope"),  # a JVM a process
)


def run(suite: Suite) -> tuple[bool, float]:
    print(f"\n=== {suite.name}: {' '.join(suite.command)}", flush=True)
    started = time.monotonic()
    done = subprocess.run(suite.command, cwd=ROOT, env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"})
    return done.returncode == 0, time.monotonic() - started


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - {suite.name for suite in SUITES}
    if unknown:
        print(
            f"unknown suite {', '.join(sorted(unknown))}; known: {', '.join(suite.name for suite in SUITES)}",
            file=sys.stderr,
        )
        return 2
    results = [(suite.name, *run(suite)) for suite in SUITES if not wanted or suite.name in wanted]
    print("\n=== time of each suite")
    for name, ok, seconds in results:
        print(f"{name:16} {seconds:7.1f} s  {'ok' if ok else 'FAILED'}")
    print(f"{'all':16} {sum(seconds for _, _, seconds in results):7.1f} s")
    passed = sum(ok for _, ok, _ in results)
    print(f"suites: {passed} passed, {len(results) - passed} failed")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
