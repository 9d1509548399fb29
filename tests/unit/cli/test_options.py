from codecs import BOM_UTF8
from pathlib import Path

import pytest

from tallystick.cli.options import MetadataOption, Password, Shape, pairs
from tallystick.errors import UsageError


def test_the_option_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_URI", "sqlite:///variable")
    assert MetadataOption("sqlite:///option").resolve() == "sqlite:///option"
    assert MetadataOption().resolve() == "sqlite:///variable"


def test_a_password_is_the_file_without_its_last_line_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_PASSWORD", "variable")
    for content, password in (
        (b"a b\n", b"a b"),
        (b"a\r\n", b"a"),
        (b"a\n\n", b"a\n"),
        (b"\xff", b"\xff"),
        (BOM_UTF8 + b"a\r\n", b"a"),
    ):
        (tmp_path / "file").write_bytes(content)
        assert Password(str(tmp_path / "file")).read() == password
    assert Password().read() == b"variable"


def test_no_password_is_the_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLY_PASSWORD", raising=False)
    assert Password().read() == b""


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n"])
def test_an_empty_password_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """A secret that is not there yet would leave the ledger open to all."""
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match="the password file is empty"):
        Password(str(tmp_path / "file")).read()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the password file: No such file"):
        Password(str(tmp_path / "none")).read()


def test_a_name_has_one_value() -> None:
    assert pairs("--custom", "name=value", ["k=1", "l=k=2", "m="]) == {"k": "1", "l": "k=2", "m": ""}
    with pytest.raises(UsageError, match=r"--custom has a value for k already \(given=k=2\)"):
        pairs("--custom", "name=value", ["k=1", "k=2"])


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(ensemble=0), "--ensemble is a whole number from 1"),
        (Shape(write_quorum=0), "--write-quorum is a whole number from 1"),
        (Shape(ack_quorum=0), "--ack-quorum is a whole number from 1"),
        (Shape(ack_quorum=3), "of --ensemble, --write-quorum and --ack-quorum none is more"),
        (Shape(id=1 << 63), "--id is a whole number from 0 to"),
        (Shape(write_quorum=4), "of --ensemble, --write-quorum and --ack-quorum none is more"),
        (Shape(id=-1), "--id is a whole number from 0"),
    ],
)
def test_a_shape_that_no_ledger_has_is_named_by_its_options(shape: Shape, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{said}"):
        shape.require()
