"""Run the checks and the test suites in two lanes side by side; print the time of each and what it skipped.

One lane computes, the other mostly waits for processes that it started: together they fill two processors, which either
leaves half idle. Within a lane suites run one after another; a lane that is through takes what the other has not begun.
Each line that a suite prints bears its name.

The last lines say of each suite that failed what did: its tests with the reason of each, or its own last lines.

Fails when a suite fails or has no test; where CI is set also when a test was skipped, unless ALLOW_SKIPPED is set too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LAST_LINES = 15  # of a suite that failed and names no test
MOST_FAILURES = 20  # of one suite that are named
REASON_LENGTH = 200
MUTANTS = "tests/sim/test_mutants.py"  # each is killed with one codec
# What uses the codec; the tests of the codec itself, and its comparisons, have both at hand anyway.
CODEC_USERS = tuple(f"tests/unit/{room}" for room in ("bookkeeper", "pipeline", "rocketmq", "runtime", "sim", "sync"))
KILL_MATRIX = "tests/spark/test_kill_matrix.py"  # as long as all others of Spark, which it can run beside


@dataclass(frozen=True)
class Suite:
    """``counts``: pytest runs it, and says how many tests there were. ``environment``: what is set for it alone."""

    name: str
    command: tuple[str, ...]
    counts: bool = False
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Result:
    name: str
    has_passed: bool
    seconds: float
    cpu_seconds: float  # of all its processes that somebody waited for
    tests: int = 0
    skipped_count: int = 0
    failures: tuple[str, ...] = ()  # tests with their reasons, or the last lines, of a suite that failed

    @property
    def state(self) -> str:
        if not self.has_passed:
            return "FAILED"
        if not self.skipped_count:
            return "ok"
        state = "SKIPPED" if self.skipped_count == self.tests else "ok"
        return f"{state}: {self.skipped_count} of {self.tests} tests skipped"


def pytest(name: str, *arguments: str) -> Suite:
    return Suite(name, (str(BIN / "pytest"), "-q", "--durations=3", *arguments), counts=True)


def pure(name: str, *arguments: str) -> Suite:
    """The same with the codec in pure Python, where a compiled one is installed, and with fewer random examples."""
    environment = (("TALLY_CODEC", "python"), ("HYPOTHESIS_PROFILE", "pure"))
    return replace(pytest(f"{name}-pure", *arguments), environment=environment)


COMPUTING = (
    Suite("check", ("make", "--no-print-directory", "check")),
    Suite("sim-minute", ("make", "--no-print-directory", "sim")),  # early: the other lane computes least then
    Suite("fuzz", ("make", "--no-print-directory", "fuzz")),
    pytest("unit", "tests/unit", "-n", "2"),
    pytest("wire", "tests/wire"),
    pytest("scenarios", "tests/scenarios", "-n", "2"),
    pytest("sim", "tests/sim", "-n", "2"),
    pytest("kill-matrix", KILL_MATRIX),  # beside the rest of Spark: behind it it would be the last, and alone
    pure("unit", *CODEC_USERS, "-n", "2"),
    pure("wire", "tests/wire"),
    pure("sim", "tests/sim", "--ignore", MUTANTS, "-n", "2"),
)
WAITING = (
    pytest("interop-rocketmq", "tests/interop/rocketmq", "-n", "2", "--dist", "loadscope"),  # a JVM a process
    pytest("interop", "tests/interop", "--ignore", "tests/interop/rocketmq"),
    pytest("conformance", "tests/conformance", "-n", "2"),
    pytest("spark", "tests/spark", "--ignore", KILL_MATRIX),
    pure("conformance", "tests/conformance", "-n", "2"),
)
LANES = (COMPUTING, WAITING)


def run_lanes(lanes: Sequence[Sequence[Suite]]) -> list[Result]:
    """The results of all suites, a lane after another. An interrupt ends what runs, and nothing more is started."""
    interrupted, lock = threading.Event(), threading.Lock()
    begun = set[Suite]()
    results: dict[Suite, Result] = {}

    def run_lane(own: Sequence[Suite]) -> None:
        others = [suite for lane in lanes if lane is not own for suite in lane]
        for suite in (*own, *others):
            if interrupted.is_set():
                return
            with lock:
                if suite in begun:
                    continue
                begun.add(suite)
            results[suite] = run(suite)

    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        running = [pool.submit(run_lane, lane) for lane in lanes]
        try:
            for lane in running:
                lane.result()
        except KeyboardInterrupt:  # which the suites got too: they are of one group of processes
            interrupted.set()
            raise
    return [results[suite] for lane in lanes for suite in lane]


def run(suite: Suite) -> Result:
    _say(suite, f"=== {' '.join(suite.command)}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        counting = ("--junitxml", str(report)) if suite.counts else ()
        code, cpu_seconds, last_lines = _run((*suite.command, *counting), suite)
        tests, skipped_count = counts_of(report) if report.exists() else (0, 0)
        failures = failures_of(report) if report.exists() else ()
    seconds = time.monotonic() - start
    shown_failures = (failures or last_lines) if code else ()
    return Result(suite.name, code == 0, seconds, cpu_seconds, tests, skipped_count, shown_failures)


def _run(command: Sequence[str], suite: Suite) -> tuple[int, float, tuple[str, ...]]:
    """Exit code, seconds of processor time and last lines of a command; what it prints is printed."""
    last_lines: deque[str] = deque(maxlen=LAST_LINES)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **dict(suite.environment)}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last_lines.append(line.rstrip("\n"))
            _say(suite, last_lines[-1])
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime, tuple(last_lines)


def _say(suite: Suite, line: str) -> None:
    print(f"{suite.name:16} | {line}\n", end="", flush=True)  # one write: the lanes share the terminal


def counts_of(report: Path) -> tuple[int, int]:
    """How many tests a report of pytest has, and how many of them were skipped."""
    suites = ElementTree.parse(report).iter("testsuite")
    both = [(int(one.get("tests", 0)), int(one.get("skipped", 0))) for one in suites]
    return sum(tests for tests, _ in both), sum(skipped for _, skipped in both)


def failures_of(report: Path) -> tuple[str, ...]:
    """The tests that failed by a report of pytest, each with the first line of its reason."""
    lines = []
    for case in ElementTree.parse(report).iter("testcase"):
        for outcome in (*case.iter("failure"), *case.iter("error")):
            reason = (outcome.get("message") or "no reason").strip().splitlines()[0]
            name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
            lines.append(f"{name}: {reason[:REASON_LENGTH]}")
    hidden = len(lines) - MOST_FAILURES
    return (*lines[:MOST_FAILURES], f"and {hidden} more") if hidden > 0 else tuple(lines)


def main(names: list[str]) -> int:
    known_names = [suite.name for lane in LANES for suite in lane]
    if unknown := set(names) - set(known_names):
        print(f"unknown suite {', '.join(sorted(unknown))}; known: {', '.join(known_names)}", file=sys.stderr)
        return 2
    lanes = [[suite for suite in lane if not names or suite.name in names] for lane in LANES]
    start = time.monotonic()
    results = run_lanes(lanes)
    allow_skipped = "CI" not in os.environ or "ALLOW_SKIPPED" in os.environ
    return 0 if report_of(results, time.monotonic() - start, allow_skipped=allow_skipped) else 1


def report_of(results: Sequence[Result], seconds: float, *, allow_skipped: bool) -> bool:
    """Print what came of all of them, which took so many ``seconds`` together; whether that is good."""
    print("\n=== time of each suite, and of the processor")
    for result in results:
        print(f"{result.name:16} {result.seconds:7.1f} s {result.cpu_seconds:7.1f} s  {result.state}")
    print(f"{'all':16} {seconds:7.1f} s {sum(result.cpu_seconds for result in results):7.1f} s")
    for result in results:
        if result.failures:
            print(f"=== what failed in {result.name}", *result.failures, sep="\n    ")
    failed_count = sum(not result.has_passed for result in results)
    empty = sum(result.has_passed and 0 < result.tests == result.skipped_count for result in results)
    skipped_count = sum(result.skipped_count for result in results)
    if skipped_count:
        print(f"{skipped_count} of {sum(result.tests for result in results)} tests were skipped: the reasons are above")
        if not allow_skipped:
            print("in CI every test must run; ALLOW_SKIPPED=1 lets some be skipped", file=sys.stderr)
    print(f"suites: {len(results) - failed_count - empty} passed, {failed_count} failed, {empty} skipped")
    return not failed_count and (allow_skipped or not skipped_count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
