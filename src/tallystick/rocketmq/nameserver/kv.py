"""The key-value configuration that operators keep at a name server, by namespace; kept in one file if it has one.

Every change is on disk when it is answered: changes are an operator's and rare, so the loop waits for the disk. Its
wait is bounded as the file is, and by ``remoting/backlog.py``, which serves others between two changes of one peer.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from tallystick.errors import RemoteProtocolError, UsageError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import KvTable
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk, read_file

MAX_BYTES = 1024 * 1024  # of the file, and of what a namespace has in an answer: a frame has 16 MiB
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"  # the namespace of ordered topics: topic to "broker:queues;…"


class _Table(msgspec.Struct, frozen=True):
    """The file, as the original writes it."""

    config: dict[str, dict[str, str]] = field(default_factory=dict, name="configTable")


class KvConfig:
    """``path`` empty: nothing is kept. Raises UsageError for a file that is none of its kind, StorageError."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self._path = disk, path
        self._table: dict[str, dict[str, str]] = {}
        self._bodies: dict[str, bytes] = {}  # of namespaces that somebody asked for since the last change
        if path and disk.exists(path):
            try:
                self._table = dialect.read_as(read_file(disk, path), _Table, bounded=False).config
            except RemoteProtocolError as error:
                raise UsageError(f"no key-value configuration of a name server: {error}", path=path) from error

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises StorageError, and RemoteProtocolError when there is no room: then nothing is changed."""
        table = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
        text = dialect.write_strict(_Table(table))
        if len(text) > MAX_BYTES:
            raise RemoteProtocolError("the key-value configuration is full", max_bytes=MAX_BYTES)
        self._become(table, text)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Also one that is not there, and of a table that is over the bound. Raises StorageError."""
        if key in self._table.get(namespace, {}):
            kept = {name: value for name, value in self._table[namespace].items() if name != key}
            table = {**self._table, namespace: kept}
            self._become(table, dialect.write_strict(_Table(table)))

    def body(self, namespace: str) -> bytes | None:
        """All of a namespace as the body of an answer (``KvTable``). Returns None if nothing was ever put there.

        A file of an original may have made it larger than ``MAX_BYTES``.
        """
        if namespace not in self._bodies and namespace in self._table:
            self._bodies[namespace] = dialect.write_strict(KvTable(self._table[namespace]))
        return self._bodies.get(namespace)

    def _become(self, table: dict[str, dict[str, str]], text: bytes) -> None:
        """The file first: what could not be stored is not served either."""
        if self._path:
            write_atomic(self._disk, self._path, text)
        self._table, self._bodies = table, {}
