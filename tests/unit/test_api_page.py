"""docs/api.md has every public name, call, argument and attribute, and none that is not there."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tallystick
from tallystick import errors, sync

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
# What the house itself uses of public classes: not promised to anybody else.
INSIDE = {
    "BookKeeper": {"context", "placement", "stream_context"},
    "LedgerWriter": {"append_batch_nowait", "drop_session", "explicit_lac", "give_up", "has_any", "replace_absent"},
    "Position": {"count", "index"},
    "Stream": {"append_encoded", "check_size", "end_with_client"},
    "Cursor": {"end_with_client"},
    "LedgerReader": {"open"},
    "LedgerMetadata": {"avoiding", "closed", "in_recovery", "with_fragment", "ctime_stored", "ctoken", "has_password"},
    "BrokerSecurity": {"around", "credentials"},
    "Message": {"all_properties", "encode_with_id"},
    "ReceivedMessage": {"repeat"},
    "Events": {"emit"},
    "TallyError": {"add_note", "args", "with_traceback"},
}
SETTINGS = (
    "ClientSettings",
    "BrokerClientSettings",
    "BrokerSecurity",
    "StreamSettings",
    "StreamClientSettings",
)  # their fields are in configuration.md
OF_INSTANCES = {
    "Producer": {"group"},
    "Consumer": {"group", "topics"},
    "LedgerReader": {"id"},
    "Stream": {"name", "settings"},
    "StreamReader": {"stream"},
    "Cursor": {"name", "stream"},
}


def sections(level: str) -> list[tuple[str, str]]:
    """Headings of a level, and what stands under each up to the next one of it or above."""
    parts = re.split(rf"^{level} (.+)$", PAGE, flags=re.MULTILINE)
    ends = re.compile(rf"^#{{1,{len(level) - 1}}} ", re.MULTILINE)
    return [(title.strip("`"), ends.split(text)[0]) for title, text in zip(parts[1::2], parts[2::2], strict=True)]


PARTS = dict(sections("###"))
CLASSES = [name for name in tallystick.__all__ if inspect.isclass(getattr(tallystick, name))]
FUNCTIONS = [name for name in tallystick.__all__ if name not in CLASSES]


def calls(section: str) -> dict[str, str]:
    """The headings of calls: name to arguments as written."""
    return dict(re.findall(r"^#### `(\w+)(\(.*\))`$", section, re.MULTILINE))


def attributes(section: str) -> set[str]:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def signature(of: Any) -> str:
    """As a caller writes it: no types, no self."""
    found = inspect.signature(of)
    parameters = [
        one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values() if one.name != "self"
    ]
    return str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def members(of: type) -> dict[str, Any]:
    found = {name: inspect.getattr_static(of, name) for name in dir(of) if not name.startswith("_")}
    if dataclasses.is_dataclass(of):
        found |= {field.name: None for field in dataclasses.fields(of)}
    if issubclass(of, msgspec.Struct):
        found |= {field.name: None for field in msgspec.structs.fields(of)}
    found |= {name: None for name in OF_INSTANCES.get(of.__name__, ())}
    found |= {name: None for name in ("message", "fields") if of is errors.TallyError}
    return {name: member for name, member in found.items() if name not in INSIDE.get(of.__name__, ())}


@pytest.mark.parametrize("name", CLASSES)
def test_every_member_of_a_class_is_on_the_page_and_no_other(name: str) -> None:
    of = getattr(tallystick, name)
    assert name in PARTS, f"docs/api.md has no section: ### {name}"
    if name in SETTINGS:
        return
    known = members(of)
    methods = {one: signature(getattr(of, one)) for one, member in known.items() if inspect.isroutine(member)}
    assert calls(PARTS[name]) == methods
    assert attributes(PARTS[name].partition("\n#### ")[0]) - _classes(PARTS[name]) == known.keys() - methods.keys()


def _classes(section: str) -> set[str]:
    """Names of errors in a table are no attributes."""
    return {name for name in re.findall(r"`(\w+)`", section) if hasattr(errors, name)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_on_the_page(name: str) -> None:
    assert calls(PARTS[name]) == {name: signature(getattr(tallystick, name))}


def test_the_page_has_no_section_of_a_name_that_is_gone() -> None:
    others = {"What is in doubt", "Cancelling"}
    assert set(PARTS) - others == set(tallystick.__all__)


def test_every_argument_is_explained_where_its_call_is() -> None:
    for heading, text in sections("####"):
        name, _, given = heading.partition("(")
        written = set(re.findall(r"(\w+)(?:=|, |\)|$)", re.sub(r"=('[^']*'|b''|[\w.()]+)", "=", given)))
        obvious = {"data", "message", "queue", "ledger", "entry", "group", "topic", "name", "listener", "environment"}
        alike = {"send_nowait", "send_one_way", "send_batch", "append_nowait"}  # as send, append
        missing = {one for one in written - obvious if f"`{one}" not in text and f" {one}" not in text}
        assert not missing or name in alike, f"{heading} does not say what these are: {missing}"


def error_rows() -> list[tuple[int, list[str], list[str]]]:
    """Of the table of errors: how far a row is indented, its classes, and those that its text names."""
    table = PARTS["TallyError"].partition("| class ")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines()[2:]]
    indent = "\u2013"  # a dash of this kind a step
    return [(own.count(indent), re.findall(r"`(\w+)`", own), re.findall(r"`([A-Z]\w+)`", text)) for own, text in rows]


def test_every_call_that_is_not_awaited_is_in_the_paragraph_that_says_which() -> None:
    """A newcomer awaited ``abort()`` of a stream, and did not await ``seek()`` of a cursor, as a consumer's is not."""
    paragraphs = PAGE.split("\n\n")
    not_awaited = "".join(one for one in paragraphs if one.startswith(("**Handles.**", "**Await.**")))
    handles = ("BookKeeper", "LedgerWriter", "LedgerReader", "Stream", "StreamReader", "Cursor", "Producer", "Consumer")
    for name in handles:
        for call in re.findall(r"^#### `(\w+)\(", PARTS[name], re.MULTILINE):
            if not inspect.iscoroutinefunction(getattr(getattr(tallystick, name), call)):
                assert f"`{call}`" in not_awaited, f"{name}.{call} is not awaited"


def test_the_page_has_every_error_and_no_other() -> None:
    known = {name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, errors.TallyError)}
    assert known - {"TallyError"} == {name for _, named, kinds in error_rows() for name in (*named, *kinds)}


def test_an_error_is_indented_below_the_one_that_it_is_a_kind_of() -> None:
    above = [errors.TallyError]  # by indentation
    for depth, named, kinds in error_rows():
        for name in named:
            assert getattr(errors, name).__base__ is above[depth], name
        above = [*above[: depth + 1], getattr(errors, named[-1])]
        for name in kinds:
            assert getattr(errors, name).__base__ is above[-1], name


def test_what_the_page_says_is_raised_exists() -> None:
    sentences = re.findall(r"Raises ([^.]*)\.", PAGE)
    named = {word for sentence in sentences for word in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", sentence)}
    assert named
    assert named - set(vars(errors)) == {"ZooKeeper"}


def test_the_blocking_door_has_no_name_that_the_page_lacks() -> None:
    assert set(sync.__all__) <= set(PARTS)


def test_enumerations_have_all_their_values() -> None:
    for name in CLASSES:
        of = getattr(tallystick, name)
        if issubclass(of, enum.Enum):
            assert attributes(PARTS[name]) == set(of.__members__)
