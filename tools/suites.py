"""Run the checks and the test suites one after another; print the time of each and what it skipped.

Fails when a suite fails or has no test; where CI is set also when a test was skipped, unless ALLOW_SKIPPED is set too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Suite:
    """``counts``: pytest runs it, and says how many tests there were."""

    name: str
    command: tuple[str, ...]
    counts: bool = False


@dataclass(frozen=True)
class Result:
    name: str
    passed: bool
    seconds: float
    tests: int = 0
    skipped: int = 0

    @property
    def state(self) -> str:
        if not self.passed:
            return "FAILED"
        if not self.skipped:
            return "ok"
        return f"{'SKIPPED' if self.skipped == self.tests else 'ok'}: {self.skipped} of {self.tests} tests skipped"


def pytest(name: str, *arguments: str) -> Suite:
    return Suite(name, (str(BIN / "pytest"), "-q", "--durations=3", *arguments), counts=True)


SUITES = (
    Suite("check", ("make", "--no-print-directory", "check")),
    pytest("unit", "tests/unit", "-n", "2"),
    pytest("wire", "tests/wire"),
    pytest("conformance", "tests/conformance", "-n", "2"),
    pytest("scenarios", "tests/scenarios", "-n", "2"),
    pytest("sim", "tests/sim", "-n", "2"),
    Suite("sim-minute", ("make", "--no-print-directory", "sim")),
    pytest("spark", "tests/spark"),
    pytest("interop", "tests/interop", "--ignore", "tests/interop/rocketmq"),
    pytest("interop-rocketmq", "tests/interop/rocketmq", "-n", "2", "--dist", "loadscope"),  # a JVM a process
)


def run(suite: Suite) -> Result:
    print(f"\n=== {suite.name}: {' '.join(suite.command)}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        counting = ("--junitxml", str(report)) if suite.counts else ()
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run((*suite.command, *counting), cwd=ROOT, env=environment)
        tests, skipped = counted(report) if report.exists() else (0, 0)
    return Result(suite.name, done.returncode == 0, time.monotonic() - started, tests, skipped)


def counted(report: Path) -> tuple[int, int]:
    """How many tests a report of pytest has, and how many of them were skipped."""
    found = ElementTree.parse(report).iter("testsuite")
    both = [(int(one.get("tests", 0)), int(one.get("skipped", 0))) for one in found]
    return sum(tests for tests, _ in both), sum(skipped for _, skipped in both)


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - {suite.name for suite in SUITES}
    if unknown:
        print(
            f"unknown suite {', '.join(sorted(unknown))}; known: {', '.join(suite.name for suite in SUITES)}",
            file=sys.stderr,
        )
        return 2
    results = [run(suite) for suite in SUITES if not wanted or suite.name in wanted]
    return 0 if report_of(results, allow_skipped="CI" not in os.environ or "ALLOW_SKIPPED" in os.environ) else 1


def report_of(results: Sequence[Result], *, allow_skipped: bool) -> bool:
    """Print what came of all of them; whether that is good."""
    print("\n=== time of each suite")
    for result in results:
        print(f"{result.name:16} {result.seconds:7.1f} s  {result.state}")
    print(f"{'all':16} {sum(result.seconds for result in results):7.1f} s")
    failed = sum(not result.passed for result in results)
    empty = sum(result.passed and 0 < result.tests == result.skipped for result in results)
    skipped = sum(result.skipped for result in results)
    if skipped:
        print(f"{skipped} of {sum(result.tests for result in results)} tests were skipped: the reasons are above")
        if not allow_skipped:
            print("in CI every test must run; ALLOW_SKIPPED=1 lets some be skipped", file=sys.stderr)
    print(f"suites: {len(results) - failed - empty} passed, {failed} failed, {empty} skipped")
    return not failed and (allow_skipped or not skipped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
