from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import RemoteProtocolError, StorageError, UsageError
from tallystick.rocketmq.nameserver import kv
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.runtime.disk import OsDisk


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "kvConfig.json")
    config = KvConfig(OsDisk(), path)
    config.put("ns", "a", "1")
    config.put("ns", "b", "2")
    config.delete("ns", "a")
    config.delete("nope", "a")
    again = KvConfig(OsDisk(), path)
    assert (again.get("ns", "a"), again.get("ns", "b"), again.body("ns")) == (None, "2", b'{"table":{"b":"2"}}')
    assert again.body("nope") is None


def test_a_file_of_the_original_is_read(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b:4"}}}')
    assert KvConfig(OsDisk(), str(tmp_path / "kv")).get("ORDER_TOPIC_CONFIG", "T") == "b:4"


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("{")
    with pytest.raises(UsageError, match="key-value"):
        KvConfig(OsDisk(), str(tmp_path / "kv"))


def test_without_a_path_nothing_is_kept() -> None:
    config = KvConfig(OsDisk(), "")
    config.put("ns", "a", "1")
    assert config.get("ns", "a") == "1"


def test_what_cannot_be_stored_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = KvConfig(OsDisk(), str(tmp_path / "kv"))
    config.put("ns", "a", "1")
    with pytest.raises(RemoteProtocolError, match="full"):
        config.put("ns", "b", "x" * kv.MAX_BYTES)
    monkeypatch.setattr(kv, "write_atomic", refuse)
    changes: tuple[Callable[[], None], ...] = (
        lambda: config.put("ns", "a", "2"),
        lambda: config.put("other", "b", "2"),
        lambda: config.delete("ns", "a"),
    )
    for change in changes:
        with pytest.raises(StorageError):
            change()
    assert (config.get("ns", "a"), config.body("other")) == ("1", None)


def test_a_table_over_the_bound_is_read_and_can_be_emptied(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text(
        f'{{"configTable":{{"ns":{{"a":"{"x" * kv.MAX_BYTES}","b":"{"x" * 17 * kv.MAX_BYTES}"}}}}}}'
    )
    config = KvConfig(OsDisk(), str(tmp_path / "kv"))
    with pytest.raises(RemoteProtocolError, match="full"):
        config.put("ns", "c", "1")
    config.delete("ns", "b")
    assert config.get("ns", "b") is None
    with pytest.raises(RemoteProtocolError, match="full"):
        config.put("ns", "c", "1")
    config.delete("ns", "a")
    config.put("ns", "c", "1")
    assert KvConfig(OsDisk(), str(tmp_path / "kv")).body("ns") == b'{"table":{"c":"1"}}'


def refuse(*arguments: object) -> None:
    raise StorageError("too many open files")
