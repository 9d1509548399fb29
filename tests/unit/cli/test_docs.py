"""A command or option that docs/cli.md does not mention fails here, and a setting that configuration.md does not."""

import dataclasses
import io
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from rich.console import Console

from tallystick.bookkeeper.bookie import keys as bookie_keys
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.cli.app import app
from tallystick.cli.options import NUMBER, WHOLE
from tallystick.rocketmq.broker import keys as broker_keys
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.nameserver import keys as name_server_keys
from tallystick.runtime.schema import Schema

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "cli.md").read_text(encoding="utf-8")
ROOMS = "|".join(room for room in app if not room.startswith("-"))


def commands(room: App = app, before: str = "") -> Iterator[tuple[str, App]]:
    for name in room:
        if not name.startswith("-"):
            found = room[name]
            if any(not inner.startswith("-") for inner in found):
                yield from commands(found, f"{before}{name} ")
            else:
                yield f"{before}{name}", found


@pytest.mark.parametrize(("command", "found"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_the_command_and_its_options_are_documented(command: str, found: App) -> None:
    assert re.search(rf"`tally {command}\b", TEXT), f"docs/cli.md does not mention: tally {command}"
    for argument in found.assemble_argument_collection():
        for name in argument.names:
            # The opposites of flags are switched off at the root, which a command alone does not see.
            if name.startswith("--") and not name.startswith(("--no-", "--empty-")):
                assert re.search(rf"{name}\b", TEXT), f"docs/cli.md does not mention {name} of: tally {command}"
        for choice in argument.get_choices() or ():
            assert re.search(rf"(?<![\w-]){choice}(?![\w-])", TEXT), f"docs/cli.md does not mention {choice}: {command}"


@pytest.mark.parametrize(("command", "found"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_the_help_of_a_command_has_an_example_that_it_takes(command: str, found: App) -> None:
    shown = io.StringIO()
    app.help_print(command.split(), console=Console(file=shown, width=200))
    examples = re.findall(r"Example: .*?\b(tally [^|)\n]*)", shown.getvalue())
    assert examples, f"tally {command} --help has no example"
    for example in examples:
        _, *words = shlex.split(example)
        assert " ".join(words).startswith(command)
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(("command", "found"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_the_usage_of_a_command_names_each_of_its_arguments(command: str, found: App) -> None:
    """cyclopts calls all that may be left out ARGS."""
    shown = io.StringIO()
    app.help_print(command.split(), console=Console(file=shown, width=200))
    usage = shown.getvalue().partition("\n")[0].split()
    words = {word.strip("[].") for word in usage}
    assert "ARGS" not in words
    for argument in found.assemble_argument_collection():
        if argument.index is not None:
            assert argument.name in words
            assert argument.required != any(word.startswith(f"[{argument.name}") for word in usage)
    assert "[default: ]" not in shown.getvalue()


@pytest.mark.parametrize(("command", "found"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_no_whole_number_is_rounded(command: str, found: App) -> None:
    """`tally ledger delete 7.6` deleted ledger 8."""
    for argument in found.assemble_argument_collection():
        if argument.hint in (int, int | None):
            assert argument.parameter.converter is WHOLE.converter, f"{argument.name} of: tally {command}"


@pytest.mark.parametrize(("command", "found"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_a_number_has_digits_of_ascii(command: str, found: App) -> None:
    """Python reads those of any script, and 1_0 as 10."""
    for argument in found.assemble_argument_collection():
        if argument.hint in (float, float | None):
            assert argument.parameter.converter is NUMBER.converter, f"{argument.name} of: tally {command}"


def test_no_command_is_documented_that_is_not_there() -> None:
    known = {" ".join(command.split()[:2]) for command, _ in commands()} | {name for name in app}
    for command in re.findall(rf"`tally ((?:{ROOMS})(?: [a-z-]+)?)", TEXT):
        assert command in known or command.startswith("completion "), f"no such command: tally {command}"


LOADERS: dict[str, Callable[[str, dict[str, str]], Any]] = {
    "bookie": bookie_keys.SCHEMA.load,
    "broker": broker_keys.SCHEMA.load,
    "nameserver": name_server_keys.SCHEMA.load,
}


@pytest.mark.parametrize("page", ["configuration.md", "broker.md", "operations.md"])
def test_the_files_of_settings_that_a_page_shows_are_taken(page: str, tmp_path: Path) -> None:
    files = re.findall(r"^```toml\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert files
    for number, text in enumerate(files):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        (room,) = re.findall(r"^\[(\w+)\]", text, re.MULTILINE)
        assert not LOADERS[room](str(path), {}).ignored, text


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


def shown(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(map(shown, default))
    return f"{default:g}" if isinstance(default, float) else str(default).lower()


def test_every_setting_of_streams_is_documented_with_its_default() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    section = text.partition("## Settings of streams\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", section, re.MULTILINE)
    written = {
        name: default
        for names, defaults in rows
        for name, default in zip(re.findall(r"\w+", names), defaults.split(", "), strict=True)
    }
    in_words = {"compression": "none", "owner": "host and process", "stream": "`StreamSettings()`"}
    fields = [*dataclasses.fields(StreamSettings), *dataclasses.fields(StreamClientSettings)]
    assert written == {field.name: in_words.get(field.name, shown(field.default)) for field in fields}


@pytest.mark.parametrize(("client", "settings"), [("ledger", ClientSettings), ("broker", BrokerClientSettings)])
def test_every_setting_of_a_client_is_documented_with_its_default(client: str, settings: type[Any]) -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    section = text.partition(f"## Settings of a {client} client\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))
    assert rows == {field.name: shown(field.default) for field in dataclasses.fields(settings)}


SCHEMAS: dict[str, Schema[Any]] = {"a broker": broker_keys.SCHEMA, "a name server": name_server_keys.SCHEMA}


@pytest.mark.parametrize("server", SCHEMAS)
def test_every_setting_is_documented_and_no_other(server: str) -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    section = text.partition(f"## Keys of {server}\n")[2].partition("\n## ")[0]
    keys = {*SCHEMAS[server].keys, *SCHEMAS[server].fixed}
    assert not {key for key in keys if f"`{key}`" not in section}
    rows = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert rows <= keys
