"""Where a cluster's metadata is, as one URI.

::

    memory://NAME                                   in this process, for tests; the name tells clusters apart
    sqlite:///absolute/path                         one file of this machine
    zk+hierarchical://host:port;host:port/ledgers   ZooKeeper; also zk:// and zk+null://, and "," between the hosts
    zk+longhierarchical://host:port/ledgers         the same, of a cluster that keeps its ledgers so
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.layout import Manager
from tallystick.errors import UsageError
from tallystick.runtime.arguments import text

ZOOKEEPER_PORT = 2181
DEFAULT_ROOT = "/ledgers"
# "null" and no flavour at all mean: whatever the cluster's LAYOUT says.
FLAVOURS = {"hierarchical": Manager.HIERARCHICAL, "longhierarchical": Manager.LONG_HIERARCHICAL, "null": None, "": None}
_SHARED = "sqlite:///absolute/path or zk+hierarchical://host:port;host:port/ledgers"


@dataclass(frozen=True)
class MemoryUri:
    name: str


@dataclass(frozen=True)
class SqliteUri:
    path: str


@dataclass(frozen=True)
class ZooKeeperUri:
    hosts: tuple[tuple[str, int], ...]
    root: str
    manager: Manager | None = None  # that its LAYOUT must name; None: any

    @property
    def servers(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


MetadataUri = MemoryUri | SqliteUri | ZooKeeperUri


def parse(uri: str) -> MetadataUri:
    """Raises UsageError that says what a URI looks like."""
    scheme, separator, rest = text(uri, "a metadata URI", may_be_path=True).partition("://")
    kind, _, flavour = scheme.lower().partition("+")
    if not separator or kind not in ("memory", "sqlite", "zk"):
        raise UsageError(f"a metadata URI is {_SHARED}, or memory://NAME within one process", uri=uri)
    if kind == "zk":
        return _zookeeper(uri, flavour, rest)
    if flavour:
        raise UsageError(f"{kind}:// has no flavours", uri=uri)
    if kind == "memory":
        if not rest:
            raise UsageError("memory:// needs a name: memory://NAME", uri=uri)
        return MemoryUri(rest)
    if not rest.startswith("/") or rest.endswith("/"):
        raise UsageError("sqlite:// needs the absolute path of a file: sqlite:///absolute/path", uri=uri)
    if "\0" in rest:
        raise UsageError("the path of a file has no NUL", uri=uri)
    return SqliteUri(os.path.normpath(rest))


def require_shared(uri: str) -> str:
    """The URI itself, for a process that is not alone in its cluster. Raises UsageError for memory and for no URI."""
    if isinstance(parse(uri), MemoryUri):
        raise UsageError(f"memory:// lives in one process, and no other sees it: use {_SHARED}", uri=uri)
    return uri


def _zookeeper(uri: str, flavour: str, rest: str) -> ZooKeeperUri:
    if flavour not in FLAVOURS:
        raise UsageError(
            f"the ledger manager {flavour!r} is not supported; known: "
            "zk+hierarchical://, zk+longhierarchical://, zk+null://, zk://",
            uri=uri,
        )
    servers, slash, path = rest.partition("/")
    root = "/" + path.strip("/") if path.strip("/") else DEFAULT_ROOT
    if slash and (not re.fullmatch(r"(/[^/\s]+)+", root) or any(part in (".", "..") for part in root.split("/"))):
        raise UsageError("the path of a ZooKeeper URI must be a plain znode path such as /ledgers", uri=uri)
    hosts = tuple(_host_port(part, uri) for part in re.split("[;,]", servers) if part.strip())
    if not hosts:
        raise UsageError("a ZooKeeper URI needs a server: zk+hierarchical://host:port/ledgers", uri=uri)
    return ZooKeeperUri(hosts, root, FLAVOURS[flavour])


def _host_port(server: str, uri: str) -> tuple[str, int]:
    match = re.fullmatch(
        r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:@\s]+))(?::(?P<port>\d{1,5}))?", server.strip()
    )
    port = int(match["port"] or ZOOKEEPER_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise UsageError("a ZooKeeper server is host:port", uri=uri, server=server)
    return match["six"] or match["host"], port
