"""Files of secrets for executors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.key_files import key_file
from tallystick.spark import add_key_file


def session_of(master: str, added: list[str], **conf: str) -> Any:
    """As much of a session as is looked at."""
    settings = {name.replace("_", "."): value for name, value in conf.items()}
    context = SimpleNamespace(master=master, getConf=lambda: settings, addFile=added.append)
    return cast("Any", SimpleNamespace(_sc=context))


@pytest.fixture
def keys(tmp_path: Path) -> str:
    (tmp_path / "keys").write_text("accessKey=a")
    return str(tmp_path / "keys")


@pytest.mark.rule("N5", "N10")
@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "yarn", "k8s://https://h", "local-cluster[2,1,512]"])
def test_n5_a_key_is_not_sent_in_plain_bytes(master: str, keys: str) -> None:
    added: list[str] = []
    with pytest.raises(UsageError, match="plain bytes"):
        add_key_file(session_of(master, added), keys)
    assert not added
    assert add_key_file(session_of(master, added, spark_network_crypto_enabled="true"), keys) == "keys"
    assert added == [keys]


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_on_one_machine_nothing_is_sent(master: str, keys: str) -> None:
    added: list[str] = []
    assert add_key_file(session_of(master, added), keys) == "keys" and added == [keys]


def test_what_no_executor_can_get_is_refused_in_words(tmp_path: Path, keys: str) -> None:
    added: list[str] = []
    absent = str(tmp_path / "absent")
    with pytest.raises(UsageError, match=f"there is no such file .path={absent}"):
        add_key_file(session_of("local[2]", added), absent)
    with pytest.raises(UsageError, match="Spark Connect hands no file to executors: put it on each machine"):
        add_key_file(cast("Any", SimpleNamespace()), keys)
    assert not added


def test_a_name_is_that_of_an_added_file_and_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark.SparkFiles, "get", lambda name: str(tmp_path / name))
    (tmp_path / "keys").write_text("accessKey=a")
    (tmp_path / "keys").chmod(0o644)
    assert key_file("keys") == str(tmp_path / "keys")
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    assert (key_file("others"), key_file("/etc/keys"), key_file(None)) == ("others", "/etc/keys", None)
