"""Files of keys and values, whoever's settings they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.runtime import keyfile


def test_the_name_or_the_table_tells_the_format(tmp_path: Path) -> None:
    for name, content in (
        ("a.toml", '[part]\nkey = "v"\nlist = [1, 2]\nflag = true\n'),
        ("a.conf", "key=v\nlist: 1,2\nflag true\n"),
        ("a", '[part]\nkey = "v"\nlist = [1, 2]\nflag = true\n'),
        ("b", "# [part] is only a comment\nkey=v\nlist=1,2\nflag=true\n"),
    ):
        (tmp_path / name).write_text(content)
        assert keyfile.read_keys(str(tmp_path / name), "part") == {"key": "v", "list": "1,2", "flag": "true"}, name


@pytest.mark.parametrize(
    ("content", "why"),
    [("[part", "not TOML"), ("[other]\na = 1", r"no table \[part\]"), ("[part]\na = 1\n[more]\nb = 2", "more than")],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "a.toml").write_text(content)
    with pytest.raises(UsageError, match=why) as raised:
        keyfile.read_keys(str(tmp_path / "a.toml"), "part")
    assert raised.value.fields["path"] == str(tmp_path / "a.toml")


def test_a_file_that_cannot_be_read_is_named_once_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"[part]\na = '\xe4'")
    for path, reason in (
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "latin.toml", "it is no UTF-8"),
    ):
        with pytest.raises(UsageError) as raised:
            keyfile.read_keys(str(path), "part")
        assert str(raised.value) == f"cannot read the configuration: {reason} (path={path})"


@pytest.mark.parametrize(
    ("read", "good", "value", "bad"),
    [
        (keyfile.text, " x", " x", None),
        (keyfile.integer, "-5", -5, "5.0"),
        (keyfile.number, "0.5", 0.5, "half"),
        (keyfile.seconds, "1500", 1.5, "1 s"),
        (keyfile.flag, "TRUE", True, "yes"),
    ],
)
def test_a_bad_value_names_its_key(read: object, good: str, value: object, bad: str | None) -> None:
    assert read("key", good) == value  # type: ignore[operator]
    if bad is not None:
        with pytest.raises(UsageError, match="key is"):
            read("key", bad)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["a.toml", "a.conf"])
def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path, name: str) -> None:
    """An editor that wrote one took ``brokerRole`` from a broker, which started as the weaker one."""
    content = '[part]\nkey = "v"\n' if name.endswith("toml") else "key=v\n"
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert keyfile.read_keys(str(tmp_path / name), "part") == {"key": "v"}


def test_a_key_with_two_values_is_refused() -> None:
    assert keyfile.parse_properties("key=v\nother=w\nkey: v\n") == {"key": "v", "other": "w"}
    with pytest.raises(UsageError, match="key is given twice") as raised:
        keyfile.parse_properties("key=SYNC\n# as it was\nkey=ASYNC\n")
    assert raised.value.fields == {"line": 3}


def test_keys_without_a_value_are_absent() -> None:
    assert keyfile.without_empty({"a": " 1 ", "b": "", "c": "  "}) == {"a": "1"}
