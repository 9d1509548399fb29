"""The stories beside this file, told again and compared word for word.

A story is a text: lines that begin with ``$`` are commands, what follows is all that they print, and ``[exit N]`` at
the end is their exit code where it is not 0. Prose stands in lines that begin with ``#``. In what is printed ``<int>``
stands for any whole number, ``<word>`` for anything without a space, ``<any>`` for anything up to the end of the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scenarios.conftest import Shell

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
WILDCARDS = {"<int>": r"-?\d+", "<word>": r"\S+", "<any>": r".*"}


@dataclass(frozen=True)
class Step:
    line: int
    command: str
    printed: str
    status: int


def parse(text: str) -> list[Step]:
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("$ "):
            steps.append(Step(number, line[2:], "", 0))
        elif line.startswith("#") or not (steps and line):
            continue
        elif found := re.fullmatch(r"\[exit (\d+)\]", line):
            steps[-1] = Step(steps[-1].line, steps[-1].command, steps[-1].printed, int(found[1]))
        else:
            steps[-1] = Step(steps[-1].line, steps[-1].command, f"{steps[-1].printed}{line}\n", steps[-1].status)
    return steps


def matches(expected: str, printed: str) -> bool:
    pattern = "".join(WILDCARDS.get(part, re.escape(part)) for part in re.split(r"(<int>|<word>|<any>)", expected))
    return re.fullmatch(pattern, printed) is not None


def trimmed(text: str) -> str:
    """Without the spaces that align a table, and without empty lines."""
    return "".join(f"{re.sub(' {2,}', '  ', line).strip(' ')}\n" for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_told(story: Path, shell: Shell) -> None:
    steps = parse(story.read_text(encoding="utf-8"))
    assert steps
    for step in steps:
        printed, status = shell.run(step.command)
        where = f"{story.name}:{step.line}: $ {step.command}"
        expected = trimmed(step.printed)
        assert matches(expected, trimmed(printed)), f"{where}\nexpected:\n{expected}\nprinted:\n{trimmed(printed)}"
        assert status == step.status, f"{where}\nexit {status}, not {step.status}"


def test_a_wrong_word_in_a_story_is_noticed() -> None:
    assert matches("ledger <int> closed\n", "ledger 12 closed\n")
    assert not matches("ledger <int> closed\n", "ledger 12 open\n")
    assert not matches("ledger <int> closed\n", "ledger 12 closed\nand more\n")
