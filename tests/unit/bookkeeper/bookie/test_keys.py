"""Files of settings: two formats, one vocabulary, nothing ignored in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystick.bookkeeper.bookie.keys import SCHEMA
from tallystick.errors import UsageError
from tallystick.runtime.keyfile import parse_properties

DOCS = Path(__file__).parents[4] / "docs" / "configuration.md"
NEEDED = {"metadataServiceUri": "sqlite:///m.db", "journalDirectory": "/j", "ledgerDirectories": "/l"}

BK_SERVER_CONF = r"""
# Licensed text, comments
! another comment
bookiePort=4181
journalDirectories=/srv/journal
ledgerDirectories = /srv/ledgers/
metadataServiceUri=zk+hierarchical://h1:2181;h2:2181/ledgers
httpServerEnabled=true
advertisedAddress: bookie.example
gcWaitTime 900000
extraServerComponents=
bookieId=\
  b-7
journalSyncData=true
journalMaxSizeMB=2048
ledgerStorageClass=org.apache.bookkeeper.settings.SortedLedgerStorage
"""
TOML = """
[bookie]
metadataServiceUri = "zk+hierarchical://h1:2181;h2:2181/ledgers"
bookiePort = 4181
journalDirectories = ["/srv/journal"]
ledgerDirectories = "/srv/ledgers"
httpServerEnabled = true
advertisedAddress = "bookie.example"
gcWaitTime = 900000
bookieId = "b-7"
journalMaxSizeMB = 2048
"""


def test_the_originals_file_and_ours_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "bk_server.conf").write_text(BK_SERVER_CONF)
    (tmp_path / "bookie.toml").write_text(TOML)
    theirs = SCHEMA.load(str(tmp_path / "bk_server.conf"), {})
    ours = SCHEMA.load(str(tmp_path / "bookie.toml"), {})
    assert theirs.settings == ours.settings
    assert theirs.settings.port == 4181
    assert theirs.settings.metadata_uri == "zk+hierarchical://h1:2181;h2:2181/ledgers"
    assert (theirs.settings.journal_dirs, theirs.settings.ledger_dirs) == (("/srv/journal",), ("/srv/ledgers",))
    assert theirs.settings.gc_wait_s == 900.0
    assert theirs.settings.bookie_id == "b-7"
    assert theirs.ignored == ("journalMaxSizeMB", "ledgerStorageClass")
    assert ours.ignored == ("journalMaxSizeMB",)


@pytest.mark.parametrize("text", [BK_SERVER_CONF, TOML], ids=["properties", "toml"])
def test_a_file_of_any_name_is_told_by_its_content(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings").write_text(text)
    assert SCHEMA.load(str(tmp_path / "settings"), {}).settings.port == 4181


def test_set_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "bk_server.conf").write_text(BK_SERVER_CONF)
    loaded = SCHEMA.load(str(tmp_path / "bk_server.conf"), {"bookiePort": "5000", "noSuchKey": "1"})
    assert loaded.settings.port == 5000
    assert "noSuchKey" in loaded.ignored


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("memory://x", "lives in one process"),
        ("Memory://x", "lives in one process"),
        ("m.db", "a metadata URI is sqlite"),
    ],
)
def test_a_bookie_needs_metadata_that_others_see(uri: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"^metadataServiceUri: .*{reason}") as caught:
        SCHEMA.read({**NEEDED, "metadataServiceUri": uri})
    assert caught.value.fields["uri"] == uri


def test_journal_directories_win_over_journal_directory() -> None:
    assert SCHEMA.read({**NEEDED, "journalDirectories": "/other"}).settings.journal_dirs == ("/other",)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("journalSyncData", "false"),
        ("journalWriteData", "false"),
        ("bookieAuthProviderFactoryClass", "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"),
        ("clientAuthProviderFactoryClass", "x"),
        ("tlsProvider", "OpenSSL"),
        ("tlsKeyStore", "/k"),
        ("saslJaasClientAllowedIds", ".*"),
        ("zkEnableSecurity", "true"),
        ("authorizedRoles", "admin"),
        ("bookiePort", "many"),
        ("diskUsageThreshold", "much"),
        ("httpServerEnabled", "maybe"),
    ],
)
def test_what_would_be_a_weaker_bookie_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=re.escape(key)):
        SCHEMA.read({**NEEDED, key: value})


def test_security_of_zookeeper_is_said_in_the_uri() -> None:
    uri = "zk://one/ledgers?zkEnableSecurity=true&zkUser=a&zkPasswordFile=/p"
    loaded = SCHEMA.read({**NEEDED, "zkEnableSecurity": "true", "metadataServiceUri": uri})
    assert loaded.ignored == () and loaded.settings.metadata_uri == uri
    with pytest.raises(UsageError, match=r"\?zkEnableSecurity=true&zkUser=NAME&zkPasswordFile=PATH"):
        SCHEMA.read({**NEEDED, "zkEnableSecurity": "true", "metadataServiceUri": "zk://one/ledgers"})


def test_security_that_is_switched_off_is_no_complaint() -> None:
    values = {**NEEDED, "zkEnableSecurity": "false", "tlsKeyStore": "", "tlsClientAuthentication": "false"}
    assert SCHEMA.read(values).ignored == ()


@pytest.mark.parametrize("key", NEEDED)
def test_what_is_needed_is_asked_for_by_name(key: str) -> None:
    with pytest.raises(UsageError, match=key):
        SCHEMA.read({name: value for name, value in NEEDED.items() if name != key})


@pytest.mark.parametrize("text", ["bookiePort = 1\n", "[bookie\n", "[bookie]\nx = 1\n[broker]\n", "[client]\n"])
def test_toml_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(UsageError):
        SCHEMA.load(str(tmp_path / "x.toml"), {})


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="cannot read"):
        SCHEMA.load("/no/such/file", {})


def test_properties_with_values_that_hold_separators() -> None:
    assert parse_properties("a=b=c:d\nflag\nuri : zk://h:1/x\n") == {"a": "b=c:d", "flag": "", "uri": "zk://h:1/x"}


def test_every_setting_is_documented() -> None:
    text = DOCS.read_text()
    for key in (*SCHEMA.keys, *SCHEMA.fixed):
        assert f"`{key}`" in text, f"{key} is missing in docs/configuration.md"


def test_folders_are_named_with_commas_between() -> None:
    settings = SCHEMA.read({**NEEDED, "journalDirectories": "/j0, /j1/", "ledgerDirectories": "/l0,/l1,/l2"}).settings
    assert settings.journal_dirs == ("/j0", "/j1") and settings.ledger_dirs == ("/l0", "/l1", "/l2")
    assert (settings.home, SCHEMA.read(NEEDED).settings.home) == ("/j0", "/l")
