"""The programs of README.md run as they stand, after the commands that it names."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.conftest import Shell

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(shell: Shell, name: str, program: str) -> tuple[str, int]:
    (shell.folder / name).write_text(program)
    return shell.run(shlex.join([sys.executable, "-P", name]))


def test_both_programs_of_the_readme_run_as_they_stand(shell: Shell) -> None:
    ledgers, topics = PROGRAMS
    commands = [f"tally dev up {options}" for options in ("--bookies 4", "--brokers 1+1")]
    for command in commands:
        assert f"`{command}`" in README
        assert shell.run(command)[1] == 0
    assert run(shell, "ledgers.py", ledgers) == ("0 one\n1 two\n2 three\n", 0)
    assert run(shell, "topics.py", topics) == ("0 one\n", 0)


def test_the_other_lines_of_the_readme_are_true(shell: Shell) -> None:
    shell.run("tally dev up --bookies 4")
    assert "`seq 1 3 | tally ledger append`" in README
    assert shell.run("seq 1 3 | tally ledger append --quiet")[1] == 0
    program = "import tallystick, sys; print(tallystick.sync.connect(sys.argv[1]).open_ledger(0).last_entry)"
    uri = shell.run('tally dev up --json 2>/dev/null | sed \'s/.*"uri": "\\([^"]*\\)".*/\\1/\'')[0].strip()
    assert shell.run(shlex.join([sys.executable, "-P", "-c", program, uri])) == ("2\n", 0)
