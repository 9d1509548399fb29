"""Metadata URIs, good and bad."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.ledger.security import KEYS
from tallystick.bookkeeper.metadata.layout import Manager
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.uri import (
    CLIENT_OPTIONS,
    MemoryUri,
    MetadataUri,
    SqliteUri,
    ZooKeeperUri,
    client_options,
    parse,
    require_plain,
    require_shared,
)
from tallystick.bookkeeper.metadata.zk_identity import ZkIdentity
from tallystick.errors import UsageError


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("memory://test", MemoryUri("test")),
        ("sqlite:///data/metadata.db", SqliteUri("/data/metadata.db")),
        ("sqlite:///data/../metadata.db", SqliteUri("/metadata.db")),
        (
            "zk+hierarchical://one:2181;two:2182/ledgers",
            ZooKeeperUri((("one", 2181), ("two", 2182)), "/ledgers", Manager.HIERARCHICAL),
        ),
        ("zk+longhierarchical://one", ZooKeeperUri((("one", 2181),), "/ledgers", Manager.LONG_HIERARCHICAL)),
        ("zk+null://one,two:2182/a/b", ZooKeeperUri((("one", 2181), ("two", 2182)), "/a/b")),
        ("zk://10.0.0.1", ZooKeeperUri((("10.0.0.1", 2181),), "/ledgers")),
        ("zk://one/", ZooKeeperUri((("one", 2181),), "/ledgers")),
        ("ZK://one/ledgers/", ZooKeeperUri((("one", 2181),), "/ledgers")),
        ("zk://[::1]:2181/ledgers", ZooKeeperUri((("::1", 2181),), "/ledgers")),
    ],
)
def test_good_ones(uri: str, expected: MetadataUri) -> None:
    assert parse(uri) == expected


@pytest.mark.parametrize("uri", ["sqlite:///m.db", "zk://one"])
def test_what_other_processes_see_is_shared(uri: str) -> None:
    assert require_shared(uri) == uri


@pytest.mark.parametrize("uri", ["memory://x", "MEMORY://x", "memory:x", ""])
def test_metadata_in_memory_is_not_shared(uri: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///absolute/path"):
        require_shared(uri)


def test_servers_as_kazoo_takes_them() -> None:
    found = parse("zk://[::1]:1;two:2/ledgers")
    assert isinstance(found, ZooKeeperUri) and found.servers == "[::1]:1,two:2"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "ledgers",
        "etcd://one/ledgers",
        "memory://",
        "memory+x://a",
        "sqlite://relative.db",
        "sqlite:///",
        "sqlite:///folder/",
        "zk:///ledgers",
        "zk+flat://one/ledgers",
        "zk+legacyhierarchical://one/ledgers",
        "zk+ms://one/ledgers",
        "zk://one:0/ledgers",
        "zk://one:99999/ledgers",
        "zk://one:x/ledgers",
        "zk://user@one/ledgers",
        "zk://one/a//b",
        "zk://one/a/../b",
        "zk://one/a b",
    ],
)
async def test_bad_ones_say_what_a_uri_is(uri: str) -> None:
    with pytest.raises(UsageError) as caught:
        await open_driver(uri)
    assert caught.value.fields["uri"] == uri.replace("user@", "…@")


def test_a_client_is_told_where_its_keys_are() -> None:
    uri = "zk://one:1;two:2/ledgers?user=a%26b+c&passwordFile=/etc/p%3Fw&authRequired=false"
    assert client_options(uri) == {"user": "a&b+c", "passwordFile": "/etc/p?w", "authRequired": "false"}
    assert parse(uri) == ZooKeeperUri((("one", 1), ("two", 2)), "/ledgers")
    assert parse("sqlite:///m.db?security=/etc/security.toml") == SqliteUri("/m.db")
    assert set(KEYS.keys) == {*CLIENT_OPTIONS} - {"security"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("password=hidden", "keeps no secret: passwordFile"),
        ("zkPassword=hidden", "keeps no secret: passwordFile or zkPasswordFile"),
        ("hidden", "name=value"),
        ("", "name=value"),
        ("user=", "once, with a value"),
        ("user", "once, with a value"),
        ("user=hidden&user=b", "once, with a value"),
    ],
)
@pytest.mark.parametrize("place", ["sqlite:///m.db", "zk://me:hidden@one/ledgers", "memory://a"])
def test_no_secret_of_a_uri_is_taken_or_shown(place: str, options: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse(f"{place}?{options}")
    assert "hidden" not in str(caught.value)


def test_a_name_and_password_in_front_of_a_host_are_not_shown() -> None:
    for uri in ("zk://me:hidden@one/ledgers", "zk://one,me:hidden@two", "etcd://me:hidden@one"):
        with pytest.raises(UsageError) as caught:
            parse(uri)
        assert "hidden" not in str(caught.value)


def test_a_server_has_settings_of_its_own() -> None:
    assert require_plain("sqlite:///m.db") == "sqlite:///m.db"
    with pytest.raises(UsageError, match="TALLY_SECURITY"):
        require_plain("sqlite:///m.db?user=a&passwordFile=/p")
    uri = "zk://one/ledgers?zkUser=a&zkPasswordFile=/p"  # who it is in ZooKeeper is said there all the same
    assert require_plain(uri) == uri and client_options(uri) == {}


def test_who_a_program_is_in_zookeeper() -> None:
    hosts = (("one", 2181),)
    for options, identity, is_secured in (
        ("zkUser=bk&zkPasswordFile=/p", ZkIdentity("bk", "/p"), False),
        ("zkUser=bk&zkPasswordFile=/p&zkEnableSecurity=true", ZkIdentity("bk", "/p"), True),
        ("zkUser=bk&zkPasswordFile=/p&zkAuthSchemes=Digest,%20sasl", ZkIdentity("bk", "/p", ("digest", "sasl")), False),
        ("user=me&passwordFile=/q&zkUser=bk&zkPasswordFile=/p", ZkIdentity("bk", "/p"), False),
        ("zkEnableSecurity=false", None, False),
    ):
        expected = ZooKeeperUri(hosts, "/ledgers", None, identity, is_secured)
        assert parse(f"zk://one?{options}") == expected, options


@pytest.mark.rule("N2")
@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("zk://one?zkEnableSecurity=true", "needs zkUser and zkPasswordFile"),
        ("zk://one?zkEnableSecurity=yes&zkUser=a&zkPasswordFile=/p", "zkEnableSecurity is true or false"),
        ("zk://one?zkUser=a", "given together"),
        ("zk://one?zkPasswordFile=/p", "given together"),
        ("zk://one?zkAuthSchemes=digest", "given together"),
        ("zk://one?zkUser=a&zkPasswordFile=p", "absolute path"),
        ("zk://one?zkUser=a:b&zkPasswordFile=/p", "zkUser is a name"),
        ("zk://one?zkUser=a&zkPasswordFile=/p&zkAuthSchemes=kerberos", "Kerberos is not spoken here"),
        ("zk://one?zkUser=a&zkPasswordFile=/p&zkAuthSchemes=,", "zkAuthSchemes has sasl, digest"),
        ("sqlite:///m.db?zkUser=a&zkPasswordFile=/p", "no ZooKeeper"),
        ("memory://m?zkEnableSecurity=true", "no ZooKeeper"),
    ],
)
def test_what_would_show_nothing_in_zookeeper_is_refused(uri: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(uri)
