"""Where a cluster's metadata is, as one URI.

::

    memory://NAME                                   in this process, for tests; the name tells clusters apart
    sqlite:///absolute/path                         one file of this machine
    zk+hierarchical://host:port;host:port/ledgers   ZooKeeper; also zk:// and zk+null://, and "," between the hosts
    zk+longhierarchical://host:port/ledgers         the same, of a cluster that keeps its ledgers so

Behind a ``?`` a client may be told where its keys are: ``?tlsTrustStore=/etc/ca.pem&user=me&passwordFile=/etc/secret``,
names and values in percent-encoding where they have ``&``, ``=``, ``?`` or ``%``. Paths alone: a URI keeps no secret,
and no error repeats what is behind the ``?``, or a name and password in front of a host. There, too, every program that
uses ZooKeeper, a server as well, says who it is (``zk_identity.py``): ``?zkUser=bk&zkPasswordFile=/etc/tally/zk``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from tallystick.bookkeeper.metadata.layout import Manager
from tallystick.bookkeeper.metadata.zk_identity import ZkIdentity
from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.arguments import text

ZOOKEEPER_PORT = 2181
DEFAULT_ROOT = "/ledgers"
# "null" and no flavour at all mean: whatever the cluster's LAYOUT says.
FLAVOURS = {"hierarchical": Manager.HIERARCHICAL, "longhierarchical": Manager.LONG_HIERARCHICAL, "null": None, "": None}
# Which keys of a client's security (``ledger/security.py``) a URI may have; ``security``: the file with all of them.
CLIENT_OPTIONS = (
    "security",
    "tlsTrustStore",
    "tlsCertificatePath",
    "tlsKeyStore",
    "tlsKeyStorePasswordPath",
    "user",
    "passwordFile",
    "authMechanisms",
    "authRequired",
)
# Who a program is in ZooKeeper, and whether what it makes there is its own (the original's key of that name).
SECURED = "zkEnableSecurity"
ZK_OPTIONS = ("zkUser", "zkPasswordFile", "zkAuthSchemes", SECURED)
_SECRETS = frozenset(("password", "passwd", "secret", "token", "key", "secretkey", "zkpassword"))
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
    identity: ZkIdentity | None = None
    is_secured: bool = False  # what is made belongs to the identity, else to everybody

    @property
    def servers(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


MetadataUri = MemoryUri | SqliteUri | ZooKeeperUri


def parse(uri: str) -> MetadataUri:
    """Raises UsageError that says what a URI looks like."""
    place = text(uri, "a metadata URI", may_be_path=True).partition("?")[0]
    options = _options(uri)
    scheme, separator, rest = place.partition("://")
    kind, _, flavour = scheme.lower().partition("+")
    if not separator or kind not in ("memory", "sqlite", "zk"):
        raise UsageError(f"a metadata URI is {_SHARED}, or memory://NAME within one process", uri=shown(uri))
    if kind == "zk":
        return _zookeeper(uri, flavour, rest, options)
    if any(name in options for name in ZK_OPTIONS):
        raise UsageError(f"{kind}:// is no ZooKeeper, and has no {' '.join(ZK_OPTIONS)}", uri=shown(uri))
    if flavour:
        raise UsageError(f"{kind}:// has no flavours", uri=shown(uri))
    if kind == "memory":
        if not rest:
            raise UsageError("memory:// needs a name: memory://NAME", uri=shown(uri))
        return MemoryUri(rest)
    if not rest.startswith("/") or rest.endswith("/"):
        raise UsageError("sqlite:// needs the absolute path of a file: sqlite:///absolute/path", uri=shown(uri))
    if "\0" in rest:
        raise UsageError("the path of a file has no NUL", uri=shown(uri))
    return SqliteUri(os.path.normpath(rest))


def shown(uri: str) -> str:
    """Returns a URI as an error may show it: without options, and without what stands in front of hosts."""
    return re.sub(r"(?<=[/;,])[^/;,]*@", "…@", uri.partition("?")[0])


def client_options(uri: str) -> dict[str, str]:
    """Returns what a URI tells a client of its keys for bookies. Raises UsageError, which shows no value."""
    return {name: value for name, value in _options(uri).items() if name in CLIENT_OPTIONS}


def _options(uri: str) -> dict[str, str]:
    place, mark, query = uri.partition("?")
    options = dict[str, str]()
    for pair in query.split("&") if mark else ():
        written, equals, value = pair.partition("=")
        name = unquote(written)
        if name not in (*CLIENT_OPTIONS, *ZK_OPTIONS):
            secret = (
                "a URI keeps no secret: passwordFile or zkPasswordFile names a file with it; "
                if name.lower() in _SECRETS
                else ""
            )
            raise UsageError(
                f"{secret}behind the ? of a metadata URI are name=value pairs with & between, of a client's keys: "
                f"{', '.join((*CLIENT_OPTIONS, *ZK_OPTIONS))}",
                uri=shown(place),
            )
        if not equals or not value or name in options:
            raise UsageError(f"the option {name} of a metadata URI is given once, with a value", uri=shown(place))
        options[name] = unquote(value)
    return options


def require_plain(uri: str) -> str:
    """The URI itself, for a server, whose keys are settings of their own, but for those of ZooKeeper. Raises UsageError
    for options of clients, and as ``require_shared``."""
    if client_options(require_shared(uri)):
        raise UsageError(
            "a server's metadata URI has no options but those of ZooKeeper: what it shows bookies is in the file that "
            "TALLY_SECURITY names",
            uri=shown(uri),
        )
    return uri


def check_secured(texts: Mapping[str, str]) -> None:
    """Raises UsageError for a server's file with the original's key of ZooKeeper's security and a URI without it."""
    is_secured = keyfile.flag(SECURED, texts.get(SECURED, "false"))
    if is_secured and f"{SECURED}=true" not in texts.get("metadataServiceUri", ""):
        raise UsageError(
            f"{SECURED} is said behind the ? of metadataServiceUri, with who this server is, as JAAS is not read here: "
            f"?{SECURED}=true&zkUser=NAME&zkPasswordFile=PATH"
        )


def require_shared(uri: str) -> str:
    """The URI itself, for a process that is not alone in its cluster. Raises UsageError for memory and for no URI."""
    if isinstance(parse(uri), MemoryUri):
        raise UsageError(f"memory:// lives in one process, and no other sees it: use {_SHARED}", uri=shown(uri))
    return uri


def _zookeeper(uri: str, flavour: str, rest: str, options: Mapping[str, str]) -> ZooKeeperUri:
    if flavour not in FLAVOURS:
        raise UsageError(
            f"the ledger manager {flavour!r} is not supported; known: "
            "zk+hierarchical://, zk+longhierarchical://, zk+null://, zk://",
            uri=shown(uri),
        )
    servers, slash, path = rest.partition("/")
    root = "/" + path.strip("/") if path.strip("/") else DEFAULT_ROOT
    if slash and (not re.fullmatch(r"(/[^/\s]+)+", root) or any(part in (".", "..") for part in root.split("/"))):
        raise UsageError("the path of a ZooKeeper URI must be a plain znode path such as /ledgers", uri=shown(uri))
    hosts = tuple(_host_port(part, uri) for part in re.split("[;,]", servers) if part.strip())
    if not hosts:
        raise UsageError("a ZooKeeper URI needs a server: zk+hierarchical://host:port/ledgers", uri=shown(uri))
    identity = _identity(options)
    is_secured = keyfile.flag(SECURED, options.get(SECURED, "false"))
    if is_secured and identity is None:
        raise UsageError(f"{SECURED} needs zkUser and zkPasswordFile: nodes would belong to nobody", uri=shown(uri))
    return ZooKeeperUri(hosts, root, FLAVOURS[flavour], identity, is_secured)


def _identity(options: Mapping[str, str]) -> ZkIdentity | None:
    user, file = options.get("zkUser"), options.get("zkPasswordFile")
    if (user is None) != (file is None) or (user is None and "zkAuthSchemes" in options):
        raise UsageError("zkUser and zkPasswordFile are given together")
    if user is None or file is None:
        return None
    if "zkAuthSchemes" not in options:
        return ZkIdentity(user, file)
    names = (name.strip().lower() for name in options["zkAuthSchemes"].split(","))
    return ZkIdentity(user, file, tuple(name for name in names if name))


def _host_port(server: str, uri: str) -> tuple[str, int]:
    match = re.fullmatch(
        r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:@\s]+))(?::(?P<port>\d{1,5}))?", server.strip()
    )
    port = int(match["port"] or ZOOKEEPER_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        reason = "a ZooKeeper server is host:port, of an IPv6 address [::1]:port"
        raise UsageError(reason, uri=shown(uri), server=server.rpartition("@")[2])
    return match["six"] or match["host"], port
