"""Every short program of examples/ runs and prints what its docstring says."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.conftest import Shell

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def promised(program: Path) -> str:
    docstring = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8")))
    assert docstring, f"{program.name} does not say what it does"
    _, marker, printed = docstring.partition("Prints::\n\n")
    assert marker, f"{program.name} does not say what it prints"
    return printed + "\n"


def test_the_examples_print_what_they_say(shell: Shell) -> None:
    assert EXAMPLES
    for options in ("--bookies 4", "--brokers 1+1"):
        assert shell.run(f"tally dev up {options}")[1] == 0
    failures = []
    for program in EXAMPLES:
        printed, status = shell.run(shlex.join([sys.executable, "-P", str(program)]))
        if (printed, status) != (promised(program), 0):
            failures.append(f"{program.name} (exit {status}) printed:\n{printed}\nnot:\n{promised(program)}")
    assert not failures, "\n".join(failures)


def test_the_examples_import_what_the_python_api_names() -> None:
    public = {"tallystick", "tallystick.errors", "tallystick.sync", "tallystick.spark"}
    for program in [*EXAMPLES, *(EXAMPLES[0].parent / "flights").glob("*.py")]:
        imported = set()
        for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module)
        # The demo is an operator too: it asks for the cluster's addresses and how near the slave is.
        own = {name for name in imported if name.startswith("tallystick") and not name.startswith("tallystick.admin.")}
        assert own <= public, program.name


def test_the_list_of_the_examples_is_complete() -> None:
    page = (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+\.py)\]", page, re.MULTILINE)
    assert sorted(listed) == [program.name for program in EXAMPLES]


def test_the_first_program_fits_into_the_readme() -> None:
    program = next(path for path in EXAMPLES if path.name == "first_ledger.py")
    lines = [line for line in program.read_text(encoding="utf-8").splitlines() if line]
    body = lines[next(number for number, line in enumerate(lines) if line == '"""') + 1 :]
    assert len(body) <= 12
