from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from support.workers import HeldWorker, WorkerAtOnce
from tallystick.errors import BrokerError, RemoteProtocolError, StorageError, UsageError
from tallystick.rocketmq.nameserver import kv
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.worker import ThreadWorker

T = TypeVar("T")


def put(config: KvConfig, namespace: str, key: str, value: str) -> None:
    told: list[Exception | None] = []
    config.put(namespace, key, value, "host", told.append)
    [error] = told
    if error is not None:
        raise error


def delete(config: KvConfig, namespace: str, key: str) -> None:
    told: list[Exception | None] = []
    config.delete(namespace, key, "host", told.append)
    [error] = told
    if error is not None:
        raise error


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "kvConfig.json")
    config = KvConfig(OsDisk(), path, WorkerAtOnce)
    put(config, "ns", "a", "1")
    put(config, "ns", "b", "2")
    delete(config, "ns", "a")
    delete(config, "nope", "a")
    again = KvConfig(OsDisk(), path, WorkerAtOnce)
    assert (again.get("ns", "a"), again.get("ns", "b"), again.body("ns")) == (None, "2", b'{"table":{"b":"2"}}')
    assert again.body("nope") is None


def test_a_file_of_the_original_is_read(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b:4"}}}')
    assert KvConfig(OsDisk(), str(tmp_path / "kv"), WorkerAtOnce).get("ORDER_TOPIC_CONFIG", "T") == "b:4"


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("{")
    with pytest.raises(UsageError, match="key-value"):
        KvConfig(OsDisk(), str(tmp_path / "kv"), WorkerAtOnce)


def test_without_a_path_nothing_is_kept() -> None:
    config = KvConfig(OsDisk(), "", WorkerAtOnce)
    put(config, "ns", "a", "1")
    assert config.get("ns", "a") == "1"


def test_what_cannot_be_stored_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = KvConfig(OsDisk(), str(tmp_path / "kv"), WorkerAtOnce)
    put(config, "ns", "a", "1")
    with pytest.raises(RemoteProtocolError, match="full"):
        put(config, "ns", "b", "x" * kv.MAX_BYTES)
    monkeypatch.setattr(kv, "write_atomic", refuse)
    changes: tuple[Callable[[], None], ...] = (
        lambda: put(config, "ns", "a", "2"),
        lambda: put(config, "other", "b", "2"),
        lambda: delete(config, "ns", "a"),
    )
    for change in changes:
        with pytest.raises(StorageError):
            change()
    assert (config.get("ns", "a"), config.body("other")) == ("1", None)
    delete(config, "ns", "nope")  # nothing is written for that


def test_a_table_over_the_bound_is_read_and_can_be_emptied(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text(
        f'{{"configTable":{{"ns":{{"a":"{"x" * kv.MAX_BYTES}","b":"{"x" * 17 * kv.MAX_BYTES}"}}}}}}'
    )
    config = KvConfig(OsDisk(), str(tmp_path / "kv"), WorkerAtOnce)
    with pytest.raises(RemoteProtocolError, match="full"):
        put(config, "ns", "c", "1")
    delete(config, "ns", "b")
    assert config.get("ns", "b") is None
    with pytest.raises(RemoteProtocolError, match="full"):
        put(config, "ns", "c", "1")
    delete(config, "ns", "a")
    put(config, "ns", "c", "1")
    assert KvConfig(OsDisk(), str(tmp_path / "kv"), WorkerAtOnce).body("ns") == b'{"table":{"c":"1"}}'


def test_changes_wait_for_the_disk_in_order_and_are_served_when_they_are_there(tmp_path: Path) -> None:
    worker, told = HeldWorker(), list[Exception | None]()
    config = KvConfig(OsDisk(), str(tmp_path / "kv"), lambda: worker)
    config.put("ns", "a", "1", "host", told.append)
    config.put("ns", "b", "2", "host", told.append)
    config.delete("ns", "a", "host", told.append)
    seen = []
    for _ in range(3):
        seen.append((config.get("ns", "a"), config.get("ns", "b"), len(told)))
        worker.do_one()
    assert seen == [(None, None, 0), ("1", None, 1), ("1", "2", 2)]
    assert config.body("ns") == b'{"table":{"b":"2"}}' and told == [None] * 3


def test_a_change_that_is_written_before_the_last_one_is_served_keeps_it(tmp_path: Path) -> None:
    class Late(WorkerAtOnce):
        """What it did is heard of later."""

        def __init__(self) -> None:
            self.done: list[Callable[[], None]] = []

        def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
            result = call()
            self.done.append(lambda: done(result, None))

    worker, path = Late(), str(tmp_path / "kv")
    config = KvConfig(OsDisk(), path, lambda: worker)
    for key in ("a", "b"):
        config.put("ns", key, "1", "host", lambda error: None)
    for heard in worker.done:
        heard()
    for served in (config, KvConfig(OsDisk(), path, WorkerAtOnce)):
        assert (served.get("ns", "a"), served.get("ns", "b")) == ("1", "1")


def test_few_changes_may_wait_and_of_one_host_fewer(tmp_path: Path) -> None:
    worker, told = HeldWorker(), list[Exception | None]()
    config = KvConfig(OsDisk(), str(tmp_path / "kv"), lambda: worker)
    for _ in range(kv.MAX_CHANGES):
        config.put("ns", "a", "1", "stranger", told.append)
    assert len(worker.given) == kv.MAX_CHANGES * 3 // 4
    for _ in range(kv.MAX_CHANGES):
        config.put("ns", "b", "1", "another stranger", told.append)
    before = len(worker.given)
    config.put("ns", "c", "1", "operator", told.append)
    assert len(worker.given) == before + 1, "two hosts leave room for a third"
    worker.do_one()
    config.put("ns", "a", "1", "stranger", told.append)
    assert len(worker.given) == before, "who has most takes no place again that others could have"
    assert {error.response_code for error in told if isinstance(error, BrokerError)} == {2}
    while worker.given:
        worker.do_one()
    assert not config._changes_by_host, "hosts that have nothing to wait for are not kept"
    config.delete("ns", "a", "stranger", told.append)
    assert len(worker.given) == 1


def test_all_of_a_namespace_is_as_the_last_change_left_it() -> None:
    config = KvConfig(OsDisk(), "", WorkerAtOnce)
    bodies = []
    for number in range(2):
        put(config, "ns", "a", str(number))
        bodies.append(config.body("ns"))
    assert bodies == [b'{"table":{"a":"0"}}', b'{"table":{"a":"1"}}']


async def test_its_thread_ends_with_it(tmp_path: Path) -> None:
    worker = ThreadWorker("kv")
    config = KvConfig(OsDisk(), str(tmp_path / "kv"), lambda: worker)
    config.put("ns", "a", "1", "host", lambda error: None)
    await config.close()
    assert config.get("ns", "a") == "1", "what was asked is done first"
    with pytest.raises(OSError):
        worker.submit(int, lambda number, error: None)


def refuse(*arguments: object) -> None:
    raise StorageError("too many open files")
