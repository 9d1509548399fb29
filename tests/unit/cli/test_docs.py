"""A command or option that docs/cli.md does not mention fails here."""

import re
from pathlib import Path

import pytest

from tallystick.cli.app import app

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands():
    for room in app:
        if room.startswith("-"):
            continue
        names = [name for name in app[room] if not name.startswith("-")]
        for name in names:
            yield f"{room} {name}", app[room][name]
        if not names:
            yield room, app[room]


@pytest.mark.parametrize(("command", "found"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_the_command_and_its_options_are_documented(command, found):
    assert re.search(rf"`tally {command}\b", TEXT), f"docs/cli.md does not mention: tally {command}"
    for argument in found.assemble_argument_collection():
        for name in argument.names:
            # The opposites of flags are switched off at the root, which a command alone does not see.
            if name.startswith("--") and not name.startswith(("--no-", "--empty-")):
                assert re.search(rf"{name}\b", TEXT), f"docs/cli.md does not mention {name} of: tally {command}"


def test_no_command_is_documented_that_is_not_there():
    known = {command for command, _ in commands()} | {name for name in app}
    for command in re.findall(r"`tally ((?:dev|ledger|bookie|cluster|completion)(?: [a-z]+)?)", TEXT):
        assert command in known or command.startswith("completion "), f"no such command: tally {command}"
