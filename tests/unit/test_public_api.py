"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tallystick


def test_every_public_name_is_there_and_documented() -> None:
    for name in tallystick.__all__:
        assert getattr(tallystick, name).__doc__, name
        assert name in dir(tallystick)
    assert set(tallystick._HOMES) == set(tallystick.__all__)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tallystick.nothing


def loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = loaded_by("import tallystick")
    assert [name for name in loaded if name.startswith("tallystick.")] == []
    assert "asyncio" not in loaded


def test_the_client_needs_none_of_the_large_libraries() -> None:
    loaded = loaded_by("import tallystick; tallystick.connect")
    assert not loaded & {"pyarrow", "pyspark", "kazoo", "structlog", "rich", "cyclopts", "prometheus_client", "pandas"}
