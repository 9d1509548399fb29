"""Schemas of settings: which keys there are, what they set, and what is refused by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from tallystick.errors import UsageError
from tallystick.runtime import keyfile, schema
from tallystick.runtime.schema import Fixed, Key, Part, Schema


@dataclass(frozen=True)
class Disk:
    wait_s: float = 1.5
    sync: bool = True

    def __post_init__(self) -> None:
        if self.wait_s <= 0:
            raise UsageError("wait_s must be above 0", value=self.wait_s)


@dataclass(frozen=True)
class Server:
    folder: str
    port: int = 7
    alias: str | None = None
    names: tuple[str, ...] = ("a", "b")
    disk: Disk = field(default_factory=Disk)


DISK = Part(Disk, {"waitTime": schema.milliseconds("wait_s"), "sync": Key("sync", keyfile.flag)})
SCHEMA = Schema(
    "server",
    Part(
        Server,
        {
            "folder": Key("folder", keyfile.text),
            "folders": Key("folder", keyfile.text),
            "port": Key("port", keyfile.integer),
            "alias": Key("alias", keyfile.text),
            "names": Key("names", lambda key, value: tuple(value.split(";"))),
        },
    ),
    re.compile("tls.*"),
    "it has no TLS",
    parts={"disk": DISK},
    needed=("folder",),
    fixed={"journal": Fixed(True, "entries would be lost"), "raft": Fixed(False, "there is no group")},
)


def test_each_part_has_its_keys_and_none_is_passed_over() -> None:
    loaded = SCHEMA.read({"folder": "/f", "waitTime": "250", "sync": "false", "prt": "8", "tlsKey": "false"})
    assert loaded.settings == Server("/f", disk=Disk(0.25, False))
    assert loaded.ignored == ("prt (did you mean port?)",)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("journal", "false", "journal=false is not supported: entries would be lost"),
        ("raft", "true", "raft=true is not supported: there is no group"),
        ("tlsKey", "/k", "tlsKey is not supported: it has no TLS"),
        ("waitTime", "0", "waitTime must be above 0"),
        ("port", "x", "port is a whole number"),
    ],
)
def test_a_value_that_is_not_supported_is_refused_by_its_key(key: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(why)}"):
        SCHEMA.read({"folder": "/f", key: value})
    assert SCHEMA.read({"folder": "/f", "journal": "true", "raft": "false"}).ignored == ()


def test_a_key_that_is_needed_may_be_given_by_another_of_its_field() -> None:
    assert SCHEMA.read({"folders": "/g"}).settings.folder == "/g"
    with pytest.raises(UsageError, match=r"^folder is missing"):
        SCHEMA.read({"folder": " "})


def test_settings_are_written_as_the_text_that_gives_them() -> None:
    settings = Server("/f", 9, None, ("x", "y"), Disk(0.75, False))
    assert SCHEMA.text(settings) == "folder=/f\nfolders=/f\nnames=x;y\nport=9\nsync=false\nwaitTime=750\n"
    assert SCHEMA.read(keyfile.parse_properties(SCHEMA.text(settings))).settings == settings
    assert DISK.change(settings.disk, {"sync": "true"}) == Disk(0.75, True)
    with pytest.raises(UsageError, match=r"^waitTime must be above 0"):
        DISK.change(settings.disk, {"waitTime": "-1"})


def test_a_key_that_is_missing_is_named_with_what_may_be_a_misspelling_of_it() -> None:
    with pytest.raises(UsageError, match=r"storeDirectory is missing: .*--config .* --set storeDirectory="):
        schema.require(["storeDirectory"], {"uri", "port"}, {"uri", "port", "storeDirectory"})
    with pytest.raises(UsageError, match=r"storeDirectory is missing \(there is storeDirectry: is it that\?\)"):
        schema.require(["storeDirectory"], {"storeDirectry", "port"}, {"port", "storeDirectory"})


def test_a_key_that_is_not_known_is_shown_with_the_one_it_is_near() -> None:
    known = ("bookiePort", "journalDirectory")
    given = {"bookiePort": "1", "bookiePrt": "2", "bookyPort": "2", "journaldirectory": "3", "somethingElse": "4"}
    assert schema.unknown(given, known) == (
        "bookiePrt (did you mean bookiePort?)",
        "bookyPort (did you mean bookiePort?)",
        "journaldirectory (did you mean journalDirectory?)",
        "somethingElse",
    )
