"""The key-value configuration that operators keep at a name server, by namespace; kept in one file if it has one.

Every change is on disk when it is answered: changes are an operator's and rare, so the loop waits for the disk.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from tallystick.errors import RemoteProtocolError, UsageError
from tallystick.rocketmq.wire import dialect
from tallystick.runtime.disk import Disk, read_file, write_atomic

MAX_BYTES = 1024 * 1024  # of the file: an operator's few settings have some kilobytes
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"  # the namespace of ordered topics: topic to "broker:queues;…"


class _Table(msgspec.Struct, frozen=True):
    """The file, as the original writes it."""

    config: dict[str, dict[str, str]] = field(default_factory=dict, name="configTable")


class KvConfig:
    """``path`` empty: nothing is kept. Raises UsageError for a file that is none of its kind, StorageError."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self._path = disk, path
        self._table: dict[str, dict[str, str]] = {}
        if path and disk.exists(path):
            try:
                self._table = dialect.read_as(read_file(disk, path), _Table).config
            except RemoteProtocolError as error:
                raise UsageError(f"no key-value configuration of a name server: {error}", path=path) from error

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises StorageError, and RemoteProtocolError when there is no room: then nothing is changed."""
        self._become({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Also one that is not there."""
        kept = {name: value for name, value in self._table.get(namespace, {}).items() if name != key}
        self._become({**self._table, namespace: kept} if namespace in self._table else self._table)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """None: nothing was ever put there."""
        return self._table.get(namespace)

    def _become(self, table: dict[str, dict[str, str]]) -> None:
        """The file first: what could not be stored is not served either."""
        text = list(dialect.write_lines(_Table(table)))
        if sum(map(len, text)) > MAX_BYTES:
            raise RemoteProtocolError("the key-value configuration is full", max_bytes=MAX_BYTES)
        if self._path:
            write_atomic(self._disk, self._path, *text)
        self._table = table
