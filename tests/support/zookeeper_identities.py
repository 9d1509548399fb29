"""A ZooKeeper server whose users log in, and URIs of who they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.security import ACL

from support.certificates import secret_file
from support.zookeeper import ZooKeeperServer
from tallystick.bookkeeper.metadata.layout import tops

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
