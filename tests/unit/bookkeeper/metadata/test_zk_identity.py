"""Who a session of ZooKeeper is, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.security import make_digest_acl_credential

from support.certificates import secret_file
from tallystick.bookkeeper.metadata.layout import own_folder, tops
from tallystick.bookkeeper.metadata.zk_identity import ZkIdentity, digest_id
from tallystick.bookkeeper.wire.digest_md5 import ZOOKEEPER, DigestClient


def test_ids_are_zookeeper_s(tmp_path: Path) -> None:
    file = secret_file(tmp_path / "zk", "new \r\n\n new\nold é\n")
    identity = ZkIdentity("bk", file, ("digest", "sasl"))
    assert identity.secrets() == ("new", "old é")
    digests = [("digest", make_digest_acl_credential("bk", secret)) for secret in ("new", "old é")]
    assert identity.ids(identity.secrets()) == (("sasl", "bk"), *digests)
    assert digest_id("bk", "new") == digests[0][1]


@pytest.mark.parametrize("root", ["/ledgers", "/prod/a/ledgers"])
def test_all_that_ours_keep_is_below_a_top_that_a_walk_takes(root: str) -> None:
    base = root.removesuffix("/ledgers")
    for kept in (
        f"{root}/LAYOUT",
        f"{own_folder(root)}/bookies/b1",
        f"/tallystick{root}/lost/1",
        f"{base}/tallystick/going/s/1",
        f"{base}/managed-ledgers/t/n/persistent/s",
    ):
        assert sum(kept.startswith(f"{top}/") for top in tops(root)) == 1, kept  # once, and not twice


@pytest.mark.rule("N5")
def test_a_server_must_show_that_it_knows_the_secret_too() -> None:
    challenge = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'
    client = DigestClient("bk", "secret", "c", ZOOKEEPER)
    assert client.step(b"").token == b""
    answer = client.step(challenge).token
    assert answer is not None and b'digest-uri="zookeeper/zk-sasl-md5"' in answer and b"secret" not in answer
    assert client.step(b"rspauth=00000000000000000000000000000000").failure
    elsewhere = DigestClient("bk", "secret", "c", ZOOKEEPER)
    elsewhere.step(b"")
    assert elsewhere.step(challenge.replace(b"zk-sasl-md5", b"bookkeeper")).failure
