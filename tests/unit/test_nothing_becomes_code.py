"""What must not be in the package, as bytes of strangers could become code by it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tallystick

PACKAGE = Path(tallystick.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__"}
# They import modules of this package by names that are written in it.
BY_NAME = {"__init__.py", "cli/sim.py", "codec/implementation.py"}


def _found(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"{name}:{line}: {each}" for each in names if each.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in CALLS:
                yield f"{name}:{line}: {called.id}()"
            if isinstance(called, ast.Attribute) and called.attr == "import_module" and name not in BY_NAME:
                yield f"{name}:{line}: a module by name"
            if any(keyword.arg == "shell" and ast.unparse(keyword.value) == "True" for keyword in node.keywords):
                yield f"{name}:{line}: shell="


@pytest.mark.rule("N8")
def test_n8_nothing_in_the_package_makes_code_of_data() -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.name.endswith("_pb2.py")]
    assert len(files) > 300
    found = [
        line
        for path in files
        for line in _found(ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(PACKAGE)))
    ]
    assert found == []


@pytest.mark.rule("N8")
@pytest.mark.parametrize(
    "text",
    ["import pickle", "from yaml import load", "eval('1')", "run('ls', shell=True)", "importlib.import_module(x)"],
)
def test_n8_what_would_is_found(text: str) -> None:
    assert list(_found(ast.parse(text), "some.py"))
