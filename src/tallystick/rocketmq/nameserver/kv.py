"""The key-value configuration that operators keep at a name server, by namespace, and its file if it has one.

A change is on the disk when its response is sent, and served from then on. Changes are written beside the loop, one
after another, each with the whole file. So few may wait, and of one host fewer still, by what others leave
(``runtime/shares.py``); others are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import field

from tallystick.errors import BrokerError, RemoteProtocolError, UsageError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import KvTable
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk, read_file
from tallystick.runtime.shares import share
from tallystick.runtime.worker import Worker

MAX_BYTES = 1024 * 1024  # of the file, and of what a namespace has in a response: a frame has 16 MiB
MAX_CHANGES = 64  # changes
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"  # the namespace of ordered topics: topic to "broker:queues;…"

KvNamespaces = dict[str, dict[str, str]]  # never changed: a change makes another one
OnKvSaved = Callable[[Exception | None], None]


class KvFile(msgspec.Struct, frozen=True):
    """The file, as the original writes it."""

    config: KvNamespaces = field(default_factory=dict, name="configTable")


class KvConfig:
    """The configuration. If ``path`` is empty nothing is stored. Raises UsageError for a file that is no such file,
    StorageError."""

    def __init__(self, disk: Disk, path: str, worker: Callable[[], Worker]) -> None:
        """``worker`` makes the one that writes the file, with the first change."""
        self._disk, self._path, self._new_worker = disk, path, worker
        self._worker: Worker | None = None
        self._table: KvNamespaces = {}
        self._bodies: dict[str, bytes] = {}  # of namespaces that somebody asked for since the last change
        self._changes_by_host: Counter[str] = Counter()  # changes, by host
        if path and disk.exists(path):
            try:
                self._table = dialect.read_as(read_file(disk, path), KvFile, bounded=False).config
            except RemoteProtocolError as error:
                raise UsageError(f"no key-value configuration of a name server: {error}", path=path) from error
        self._written_table = self._table  # the worker's: with what it wrote of changes that are not served yet

    def put(self, namespace: str, key: str, value: str, host: str, done: OnKvSaved) -> None:
        """Set a value. ``done`` is called when it is served, or with why nothing is changed: StorageError,
        RemoteProtocolError when there is no room, BrokerError when too many changes of the ``host``, or of all,
        wait."""
        self._change(partial(_with, namespace, key, value), host, done)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str, host: str, done: OnKvSaved) -> None:
        """Delete a value, as ``put`` sets one; also one that does not exist, and from a table above the bound."""
        self._change(partial(_without, namespace, key), host, done)

    def body(self, namespace: str) -> bytes | None:
        """Returns a namespace as the body of a response (``KvTable``); None if it never had a value. A file of an
        original may have made it larger than ``MAX_BYTES``."""
        if namespace not in self._bodies and namespace in self._table:
            self._bodies[namespace] = dialect.write_strict(KvTable(self._table[namespace]))
        return self._bodies.get(namespace)

    async def close(self) -> None:
        """Close it when all changes are done."""
        if self._worker is not None:
            await self._worker.idle()
            self._worker.close()

    def _change(self, change: Callable[[KvNamespaces], KvNamespaces], host: str, done: OnKvSaved) -> None:
        if not share(MAX_CHANGES - self._changes_by_host.total(), self._changes_by_host[host]):
            remark = "too many changes wait for the disk: ask again later"
            done(BrokerError(remark, response_code=ResponseCode.SYSTEM_BUSY))
            return
        if self._worker is None:
            self._worker = self._new_worker()
        self._changes_by_host[host] += 1

        def change_ended(table: KvNamespaces | None, error: Exception | None) -> None:
            self._changes_by_host[host] -= 1
            if not self._changes_by_host[host]:
                del self._changes_by_host[host]
            if table is not None:
                self._table, self._bodies = table, {}
            done(error)

        self._worker.submit(partial(self._store, change), change_ended)

    def _store(self, change: Callable[[KvNamespaces], KvNamespaces]) -> KvNamespaces:
        """On the worker. The file first: what could not be stored is not served either."""
        table = change(self._written_table)
        if self._path and table is not self._written_table:
            write_atomic(self._disk, self._path, dialect.write_strict(KvFile(table)))
        self._written_table = table
        return table


def _with(namespace: str, key: str, value: str, table: KvNamespaces) -> KvNamespaces:
    table = {**table, namespace: {**table.get(namespace, {}), key: value}}
    if len(dialect.write_strict(KvFile(table))) > MAX_BYTES:
        raise RemoteProtocolError("the key-value configuration is full", max_bytes=MAX_BYTES)
    return table


def _without(namespace: str, key: str, table: KvNamespaces) -> KvNamespaces:
    if key not in table.get(namespace, {}):
        return table
    return {**table, namespace: {name: value for name, value in table[namespace].items() if name != key}}
