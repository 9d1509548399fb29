"""What `make test` says at its end."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def suites() -> ModuleType:
    spec = importlib.util.spec_from_file_location("suites", ROOT / "tools" / "suites.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["suites"] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


def test_skipped_tests_are_counted_and_ci_does_not_accept_them(
    suites: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [
        suites.Result("check", True, 9.0, 8.0),
        suites.Result("unit", True, 30.0, 55.5, 1000, 3),
        suites.Result("interop", True, 1.0, 0.5, 116, 116),
    ]
    assert suites.report_of(results, 35.0, allow_skipped=True)
    said = capsys.readouterr().out
    assert "interop              1.0 s     0.5 s  SKIPPED: 116 of 116 tests skipped\n" in said
    assert "unit                30.0 s    55.5 s  ok: 3 of 1000 tests skipped\n" in said
    assert "all                 35.0 s    64.0 s\n" in said
    assert "119 of 1116 tests were skipped" in said
    assert said.endswith("suites: 2 passed, 0 failed, 1 skipped\n")
    assert not suites.report_of(results, 35.0, allow_skipped=False)
    assert suites.report_of(results[:1], 9.0, allow_skipped=False)


def test_a_failed_suite_fails_all(suites: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert not suites.report_of([suites.Result("unit", False, 1.0, 1.0, 10, 0)], 1.0, allow_skipped=True)
    assert capsys.readouterr().out.endswith("suites: 0 passed, 1 failed, 0 skipped\n")


def test_the_last_lines_say_which_tests_failed_and_why(
    suites: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "test_some.py"
    program.write_text(
        "import pytest\n@pytest.fixture\ndef broken(): raise OSError('no disk')\n"
        "def test_a(): assert 1 == 2, 'one is\\nnot two'\ndef test_b(broken): pass\ndef test_c(): pass\n"
    )
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program))
    failed = suites.run(suites.Suite("unit", command, counts=True))
    (first, second) = failed.failures
    assert first.endswith("test_some::test_a: AssertionError: one is")
    assert "test_some::test_b: " in second and "OSError: no disk" in second
    other = suites.run(suites.Suite("check", ("sh", "-c", "seq 40; exit 3")))
    crashed = suites.run(suites.Suite("wire", ("sh", "-c", "echo it crashed; exit 1"), counts=True))
    assert other.failures == tuple(map(str, range(26, 41))) and crashed.failures == ("it crashed",)
    capsys.readouterr()
    assert not suites.report_of([failed, other, crashed, suites.Result("sim", True, 1.0, 1.0)], 9.0, allow_skipped=True)
    said = capsys.readouterr().out.splitlines()
    at = said.index("=== what failed in unit")
    assert said[at:] == [
        "=== what failed in unit", f"    {first}", f"    {second}",
        "=== what failed in check", *(f"    {number}" for number in range(26, 41)),
        "=== what failed in wire", "    it crashed",
        "suites: 1 passed, 3 failed, 0 skipped",
    ]  # fmt: skip


def test_suites_of_the_codec_in_python_say_so_to_their_processes(suites: ModuleType, tmp_path: Path) -> None:
    program = tmp_path / "test_codec.py"
    program.write_text(
        "import os, subprocess, sys\nfrom tallystick.codec import implementation\n"
        "def test_all_use_it():\n    assert implementation.in_use() == 'python'\n"
        "    asks = 'from tallystick.codec import implementation; print(implementation.in_use())'\n"
        "    assert subprocess.check_output([sys.executable, '-c', asks]) == b'python\\n'\n"
    )
    before = dict(os.environ)
    suite = suites.pure("codec", "-p", "no:cacheprovider", str(program))
    result = suites.run(suite)
    assert suite.name == "codec-pure" and result.has_passed and result.tests == 1 and dict(os.environ) == before
    names = {one.name for lane in suites.LANES for one in lane}
    assert {"unit-pure", "wire-pure", "conformance-pure", "sim-pure"} <= names
    assert all((ROOT / room).is_dir() for room in suites.CODEC_USERS) and (ROOT / suites.MUTANTS).exists()


def test_of_very_many_tests_that_failed_the_first_are_named(suites: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    cases = "".join(f"<testcase name='test_{n}'><failure message='{'x' * 900}'/></testcase>" for n in range(30))
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    failures = suites.failures_of(report)
    assert len(failures) == 21 and failures[-1] == "and 10 more" and failures[0].startswith("test_0: xxx")
    assert max(map(len, failures)) < 250


def test_lanes_run_side_by_side_and_each_line_bears_its_suite(
    suites: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of the two first waits for what the other does; one after another they would fail."""

    def meeting(mine: str, other: str) -> tuple[str, ...]:
        return (
            "timeout",
            "60",
            "sh",
            "-c",
            f"touch {mine}; until [ -e {other} ]; do sleep 0.01; done; echo met; echo {mine} >&2",
        )

    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    computing = (suites.Suite("computing", meeting(one, two)), suites.Suite("next", ("sh", "-c", "exit 3")))
    waiting = (suites.Suite("waiting", meeting(two, one)),)
    results = suites.run_lanes([computing, waiting])
    assert [(result.name, result.has_passed) for result in results] == [
        ("computing", True),
        ("next", False),
        ("waiting", True),
    ]
    said = capsys.readouterr().out.splitlines()
    assert f"{'computing':16} | met" in said and f"{'computing':16} | {one}" in said
    assert f"{'waiting':16} | met" in said and f"{'waiting':16} | {two}" in said


def test_a_lane_that_is_through_takes_what_the_other_has_not_begun(suites: ModuleType, tmp_path: Path) -> None:
    """The first of the long lane waits for its second, which it could never begin itself."""
    done = tmp_path / "done"
    waits = ("timeout", "60", "sh", "-c", f"until [ -e {done} ]; do sleep 0.01; done")
    long = (suites.Suite("first", waits), suites.Suite("second", ("touch", str(done))))
    results = suites.run_lanes([(suites.Suite("short", ("true",)),), long, ()])
    assert [(result.name, result.has_passed) for result in results] == [
        ("short", True), ("first", True), ("second", True),
    ]  # fmt: skip


def test_a_suite_s_processor_time_has_that_of_its_children(suites: ModuleType) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    result = suites.run(suites.Suite("burning", ("sh", "-c", f"'{sys.executable}' -c '{burn}'; true")))
    assert result.has_passed and result.cpu_seconds >= 0.3


def test_tests_are_counted_by_pytest_s_own_report(suites: ModuleType, tmp_path: Path) -> None:
    program = tmp_path / "test_some.py"
    program.write_text("import pytest\ndef test_a(): pass\n@pytest.mark.skip\ndef test_b(): pass\n")
    report = tmp_path / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program), "--junitxml", str(report)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert suites.counts_of(report) == (2, 1)


def test_the_demo_looks_for_java_before_it_installs_anything() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", "-n", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "preflight.py python java" in done.stdout.splitlines()[0]
