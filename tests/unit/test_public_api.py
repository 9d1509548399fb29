"""The public names, and what importing them costs."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import pkgutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import tallystick
import tallystick.sync
import tallystick.testing
from tallystick.admin import cluster
from tallystick.errors import UsageError
from tallystick.runtime.events import Event, Events

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_every_public_name_is_there_and_documented() -> None:
    for name in tallystick.__all__:
        assert getattr(tallystick, name).__doc__, name
        assert name in dir(tallystick)
    assert set(tallystick._HOMES) == set(tallystick.__all__)


def test_what_completion_offers_is_what_is_promised() -> None:
    assert set(dir(tallystick)) == {*tallystick.__all__, *tallystick._MODULES, "__version__"}
    assert tallystick.__version__ == version("tallystick")


@pytest.mark.parametrize(
    "module", [tallystick, tallystick.sync, tallystick.testing], ids=lambda module: module.__name__
)
def test_every_public_member_says_what_it_is_or_does(module: ModuleType) -> None:
    """Before what it raises, which help() shows of some members alone."""
    classes = [one for name in module.__all__ if inspect.isclass(one := getattr(module, name))]
    for of in (one for one in classes if one.__module__.startswith("tallystick")):
        for name in (one for one in dir(of) if not one.startswith("_")):
            member = inspect.getattr_static(of, name)
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function) and function.__module__.startswith("tallystick"):
                text = inspect.getdoc(function) or ""
                assert text and not text.startswith(("Raises", "Without")), f"{of.__qualname__}.{name}: {text}"


def test_no_signature_shows_the_environment() -> None:
    """Whatever renders one, as help() or a tooltip, would show all its variables, secrets too."""
    for module in pkgutil.walk_packages(tallystick.__path__, "tallystick."):
        if module.name.endswith("__main__"):
            continue
        members = vars(importlib.import_module(module.name)).values()
        classes = [one for one in members if inspect.isclass(one) and one.__module__.startswith("tallystick")]
        methods = [getattr(one, "__func__", one) for of in classes for one in vars(of).values()]
        for function in filter(inspect.isfunction, (*members, *methods)):
            for parameter in inspect.signature(function).parameters.values():
                assert parameter.default is not os.environ, f"{function.__qualname__} in {module.name}"


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tallystick.nothing


async def test_what_clients_have_to_say_goes_to_logging_unless_somebody_else_listens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[Event] = []
    await cluster.init("memory://said")
    with caplog.at_level(logging.INFO, "tallystick"):
        for events in (None, Events(heard.append)):
            async with tallystick.connect("memory://said", events=events) as bk:
                bk.context.events.emit("ledger closed", ledger=1)
            async with tallystick.topics("127.0.0.1:1", events=events) as mq:
                mq._context.events.emit("not committed", group="g")
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("tallystick", "INFO", "ledger closed ledger=1"),
        ("tallystick", "WARNING", "not committed group=g"),
    ]
    assert [event.kind for event in heard] == ["ledger closed", "not committed"]


def test_the_modules_are_there_without_an_import_of_their_own() -> None:
    for name in ("sync.connect", "errors.TallyError", "spark.register"):
        script = f"import tallystick; print(callable(tallystick.{name}))"
        assert subprocess.check_output([sys.executable, "-c", script], text=True) == "True\n"


@pytest.mark.parametrize(
    ("library", "call", "extra"),
    [
        ("kazoo", "tallystick.sync.connect('zk+hierarchical://127.0.0.1:1/ledgers').ledger_metadata(1)", "zk"),
        ("pyspark", "tallystick.spark.session()", "spark"),
        ("pyspark", "tallystick.spark.register(None)", "spark"),
        ("pyarrow", "tallystick.spark.register(None)", "spark"),
        ("pandas", "tallystick.spark.register(None)", "spark"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_what_its_extra_has(library: str, call: str, extra: str) -> None:
    script = f"import sys; sys.modules[{library!r}] = None; import tallystick, tallystick.sync; {call}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    wanted = " ".join(f"'{one}'" for one in extras[extra])
    assert f"needs {library}: pip install {wanted}\n" in done.stderr


def test_a_java_home_without_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="JAVA_HOME has no bin/java"):
        tallystick.spark.session()


def test_the_command_line_says_what_to_install_too() -> None:
    script = (
        "import sys; sys.modules['kazoo'] = None; from tallystick import cli; "
        "sys.exit(cli.main(['ledger', 'list', '--uri', 'zk+hierarchical://127.0.0.1:1/ledgers']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "tally: metadata in ZooKeeper needs kazoo: pip install 'kazoo>=2.10'\n",
    )


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
