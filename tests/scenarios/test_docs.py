"""The programs and commands of the pages in docs/ run as they stand, in the order in which they are read.

A ```text block behind a program is what it prints. Commands are the ``$`` lines of ```console blocks, but for servers
themselves and those that need one at a port of its own.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.conftest import Shell

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("api.md", "streams.md", "broker.md", "configuration.md")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def test_what_the_pages_show_works(shell: Shell) -> None:
    for options in ("--bookies 4", "--brokers 1+1"):
        assert shell.run(f"tally dev up {options}")[1] == 0
    for page in PAGES:
        blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
        assert blocks
        for kind, text, printed in blocks:
            for command in programs(shell, text) if kind == "python" else commands(text):
                found, status = shell.run(command)
                assert status == 0, f"{page}: {text}\n{found}"
                assert not printed or found == printed, f"{page}: {text}\n{found}"


def programs(shell: Shell, text: str) -> list[str]:
    (shell.folder / "program.py").write_text(text)
    return [shlex.join([sys.executable, "-P", "program.py"])]


def commands(text: str) -> list[str]:
    lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not re.search(r"^tally \w+ run\b|:9876|:2181", line)]
