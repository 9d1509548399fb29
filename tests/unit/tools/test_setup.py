"""What an installation takes into the package: nothing that an earlier build left behind."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def build_bases(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each build's folder. setuptools is not in every environment, so that a stand-in takes what it would be told."""
    bases: list[Path] = []

    def setup(options: dict[str, dict[str, Any]], **_: Any) -> None:
        bases.append(Path(options["build"]["build_base"]))
        assert list(bases[-1].iterdir()) == []

    stand_in = types.ModuleType("setuptools")
    vars(stand_in).update(setup=setup, Extension=lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "setuptools", stand_in)
    monkeypatch.chdir(ROOT)
    return bases


def test_each_build_has_an_empty_folder_outside_of_the_checkout(build_bases: list[Path]) -> None:
    """In build/ modules that were deleted since would stay, and be installed with the next version."""
    for _ in range(2):
        runpy.run_path("setup.py")
    first, second = build_bases
    assert first != second
    for base in build_bases:
        assert base.is_absolute() and not base.is_relative_to(ROOT)
        assert not base.exists()
