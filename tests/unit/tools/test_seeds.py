"""Where random tests begin: in CI the commit says it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.seeds import ROOT, WITHOUT_GIT, seed_of, tree_seed


def test_the_seed_of_a_tree_is_the_beginning_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    tree_seed.cache_clear()
    assert tree_seed(tmp_path) == WITHOUT_GIT

    def git(*words: str) -> str:
        identity = ("-c", "user.name=any", "-c", "user.email=any")
        return subprocess.run(
            ("git", *identity, *words), cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    (tmp_path / "file").write_text("text")
    git("add", "file")
    git("commit", "--quiet", "--message", "one")
    tree_seed.cache_clear()
    assert f"{tree_seed(tmp_path):08x}" == git("rev-parse", "HEAD^{tree}")[:8]
    monkeypatch.setenv("PATH", str(tmp_path))
    tree_seed.cache_clear()
    assert tree_seed(tmp_path) == WITHOUT_GIT, "nobody has git here"


def test_in_ci_the_simulator_and_each_test_begin_where_the_commit_says() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "CI"}
    lines = [
        subprocess.run(["make", "-n", "sim"], cwd=ROOT, env=one, capture_output=True, text=True, check=True).stdout
        for one in (environment, {**environment, "CI": "true"})
    ]
    assert "--first" not in lines[0] and "--first $(.venv/bin/python tests/support/seeds.py)" in lines[1]
    done = subprocess.run([sys.executable, "tests/support/seeds.py"], cwd=ROOT, capture_output=True, check=True)
    assert int(done.stdout) == tree_seed()
    assert seed_of("one test") == seed_of("one test") != seed_of("another")


def test_what_a_test_draws_is_the_same_in_each_run_of_ci_and_new_elsewhere(tmp_path: Path) -> None:
    """Examples of hypothesis as well."""
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_any.py").write_text(
        "import random\nfrom hypothesis import given, strategies as st\n"
        "def test_seed(): print('drawn', random.randrange(1 << 32))\n"
        "@given(st.integers())\ndef test_example(number): print('drawn', number)\n"
    )
    skipped = ("CI", "HYPOTHESIS_PROFILE", "PYTEST_ADDOPTS")
    environment = {name: value for name, value in os.environ.items() if name not in skipped}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "tests", ROOT / "src")))
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_any.py"]

    def drawn(**more: str) -> list[str]:
        done = subprocess.run(command, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return [line for line in done.stdout.splitlines() if "drawn" in line]

    in_ci, elsewhere = [drawn(CI="true") for _ in range(2)], [drawn() for _ in range(2)]
    assert in_ci[0] == in_ci[1] and len(in_ci[0]) > 50
    assert elsewhere[0] != elsewhere[1] and elsewhere[0][0] != elsewhere[1][0]
