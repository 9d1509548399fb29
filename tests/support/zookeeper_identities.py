"""A ZooKeeper server whose users log in, and URIs of who they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.security import ACL, make_digest_acl_credential

from support.certificates import secret_file
from support.zookeeper import ZooKeeperServer
from tallystick.admin.zk_acl import zk_acl
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.layout import own_folder, tops
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.metadata.zk_acls import Walk
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata

INFO = BookieInfo.at("127.0.0.1", 3181)
METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))
USER = "bookkeeper"
SECRET = "s3cret of the cluster"
SUPER = "a secret of the super user"
# super:(base64 of the SHA-1 of "super:" and the secret)
SUPER_ID = "super:pEHbkhinsXDgpWeug2GVejxEAIQ="


@dataclass
class SecuredZooKeeper:
    """``root`` is where the cluster is; each test has a server of its own, as the nodes of streams are all of one."""

    server: ZooKeeperServer
    folder: Path
    root: str = "/prod/ledgers"

    @classmethod
    def make(cls, folder: Path, users: Mapping[str, str] | None) -> SecuredZooKeeper:
        flag = f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_ID}"
        return cls(ZooKeeperServer(folder / "zookeeper", users=users, flags=(flag,)), folder)

    @property
    def plain(self) -> str:
        return f"zk+hierarchical://{self.server.address}{self.root}"

    def uri(
        self, *secrets: str, file: str = "password", schemes: str = "sasl", is_secured: bool = True, user: str = USER
    ) -> str:
        """Returns the URI of who shows these secrets, which are written to a file of this name."""
        file = secret_file(self.folder / file, "\n".join(secrets or (SECRET,)))
        options = f"zkUser={user}&zkPasswordFile={file}&zkAuthSchemes={schemes}"
        return f"{self.plain}?{options}&zkEnableSecurity={str(is_secured).lower()}"

    def acls(self) -> dict[str, set[str]]:
        """Returns to whom each node of the cluster belongs, as a client of kazoo's alone sees it."""
        client = KazooClient(self.server.address, auth_data=[("digest", f"super:{SUPER}")])
        client.start()
        try:
            found: dict[str, set[str]] = {}
            waiting = [top for top in tops(self.root) if client.exists(top)]
            while waiting:
                path = waiting.pop()
                found[path] = {_shown(acl) for acl in client.get_acls(path)[0]}
                waiting += [f"{path}/{name}" for name in client.get_children(path)]
            return found
        finally:
            client.stop()
            client.close()


def _shown(acl: ACL) -> str:
    return f"{acl.id.scheme}:{acl.id.id}:{acl.perms}"


def serving(folder: Path, users: Mapping[str, str] | None) -> Iterator[SecuredZooKeeper]:
    made = SecuredZooKeeper.make(folder, users)
    try:
        made.server.start()
        yield made
    finally:
        made.server.stop()


class Drivers:
    def __init__(self) -> None:
        self.opened: list[ClusterMetadata] = []

    async def open(self, uri: str, *, session_timeout_s: float = 10.0) -> ClusterMetadata:
        driver = await open_driver(uri, session_timeout_s=session_timeout_s)
        assert isinstance(driver, ClusterMetadata)
        self.opened.append(driver)
        return driver


async def filled(driver: ClusterMetadata) -> int:
    """Make a cluster, and what its programs make in it. Returns a ledger."""
    await driver.init_cluster()
    await driver.register("b1", INFO)
    read_only = await driver.register("b2", INFO)
    await read_only.set_read_only(True)
    await driver.store.change(Create(f"{driver.root}/cookies/b1", b"cookie"))
    ledger = (await driver.create_ledger(METADATA)).value
    await driver.create_ledger(METADATA, 1 << 40)
    for path in (
        "/prod/managed-ledgers/public/default/persistent/s",
        "/prod/tallystick/going/s/1",
        f"/tallystick{driver.root}/lost/1",
        f"{own_folder(driver.root)}/x",
    ):
        await driver.store.change(Create(path, b""))
    return ledger


async def walked(uri: str, order: str) -> Walk:
    """Returns what is so after the walk."""
    now, _ = await zk_acl(uri, order, lambda _: None)
    return now


def digest(secret: str) -> str:
    return f"digest:{make_digest_acl_credential(USER, secret)}:31"
