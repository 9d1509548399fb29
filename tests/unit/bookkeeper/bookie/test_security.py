"""Settings of who may connect to a bookie: what protects nothing is refused, and what is open says so."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.bookies import Home
from support.certificates import secret_file
from support.keyed import KeyFiles
from tallystick.bookkeeper.bookie import config, ports
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.config import BookieSettings, addresses_of
from tallystick.bookkeeper.bookie.keys import SASL_FACTORY, SCHEMA, TLS_FACTORY
from tallystick.bookkeeper.bookie.permissions import (
    ALL,
    ANONYMOUS,
    ORIGINAL,
    PeerIdentity,
    Permission,
    parse_permissions,
)
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.bookie.users import parse_users
from tallystick.errors import UsageError

NEEDED = {"metadataServiceUri": "sqlite:///m.db", "journalDirectory": "/j", "ledgerDirectories": "/l"}
_TLS: dict[str, Any] = {"tls": True, "tls_certificate": "/c.pem", "tls_key": "/c.key"}


def settings(security: SecuritySettings | None = None, **changes: Any) -> BookieSettings:
    return BookieSettings("memory://m", ("/j",), ("/l",), security=security or SecuritySettings(), **changes)


@pytest.mark.rule("N1")
def test_n1_beyond_loopback_nobody_serves_strangers_unless_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "interface_address", lambda name: "192.0.2.7")
    for open_ in (SecuritySettings(), SecuritySettings(**_TLS), SecuritySettings(**_TLS, tls_ask_certificate=True)):
        with pytest.raises(UsageError, match="allowAnonymous=true"):
            addresses_of(settings(open_, interface="eth0"))
        assert addresses_of(settings(open_)).is_loopback
    closed = SecuritySettings(mechanisms=("sasl",), users_file="/u")
    for security in (closed, SecuritySettings(allow_anonymous=True)):
        assert addresses_of(settings(security, interface="eth0")).listen_host == "192.0.2.7"


@pytest.mark.rule("N1")
async def test_n1_what_listens_beyond_this_machine_says_at_each_start_who_comes_in(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "interface_address", lambda name: socket.gethostbyname(socket.gethostname()))
    users = secret_file(tmp_path / "users", "[users]\nbookkeeper = 'secret'\n")
    if config.interface_address("any").startswith("127."):
        monkeypatch.setattr(config.Addresses, "is_loopback", False)
    for security, said in (
        (SecuritySettings(allow_anonymous=True), "whoever reaches the port can read and write"),
        (SecuritySettings(mechanisms=("sasl",), users_file=users), "secrets and entries are not encrypted"),
    ):
        home.events.clear()
        async with home.running(security=security, interface="any"):
            assert [event.fields["reason"] for event in home.heard("listening beyond this machine")] == [
                f"listeningInterface says so; {said}"
            ]


@pytest.mark.rule("N1")
def test_n1_pages_beyond_this_machine_are_for_who_has_a_certificate_unless_that_is_written() -> None:
    pages: dict[str, Any] = {"http_enabled": True, "http_host": "192.0.2.7"}
    asks = SecuritySettings(**_TLS, tls_trust="/t", tls_ask_certificate=True)
    for open_ in (SecuritySettings(), SecuritySettings(**_TLS), replace(asks, tls_required=False)):
        with pytest.raises(UsageError, match="metricsAllowAnonymous=true"):
            addresses_of(settings(open_, **pages))
    for given in (
        settings(asks, **pages),
        settings(http_anonymous=True, **pages),
        settings(SecuritySettings(allow_anonymous=True), **pages),
        settings(http_host="192.0.2.7"),  # there are none
    ):
        assert addresses_of(given)


@pytest.mark.rule("N1", "N5")
@pytest.mark.real_time
async def test_n5_pages_have_tls_where_clients_have_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the machine itself they have it beside plain bytes: ``tally auth status`` asks there."""
    keys = KeyFiles.make(tmp_path / "keys")
    plain, encrypted, certified = None, keys.context(), keys.context(certified=True)
    required = keys.bookie_settings(tls_ask_certificate=True)

    async def serves(bookie: Bookie, context: ssl.SSLContext | None) -> bool:
        assert bookie.http_address is not None
        reader, writer = await asyncio.open_connection(*bookie.http_address, ssl=context)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        page = b""
        with suppress(OSError):
            page = await reader.read()
        writer.close()
        return b"metadata_reached" in page

    async with home.running(http_enabled=True, http_port=0, security=required) as bookie:
        assert [await serves(bookie, context) for context in (plain, encrypted, certified)] == [True, False, True]
        monkeypatch.setattr(ports, "is_near", lambda host: False)  # as if they came from elsewhere
        assert [await serves(bookie, context) for context in (plain, encrypted, certified)] == [False, False, True]


@pytest.mark.rule("N1")
async def test_n1_pages_beyond_this_machine_are_told_at_each_start(home: Home) -> None:
    for host, told in (("127.0.0.1", 0), ("localhost", 0), ("0.0.0.0", 1)):
        home.events.clear()
        async with home.running(http_enabled=True, http_port=0, http_host=host, http_anonymous=True):
            assert len(home.heard("listening beyond this machine")) == told


@pytest.mark.rule("N2")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mechanisms": ("gssapi",)}, "Kerberos"),
        ({"mechanisms": ("plain",)}, "no such mechanism"),
        ({"mechanisms": ("sasl",)}, "usersFile"),
        ({"mechanisms": ("certificate",)}, "tlsTrustStore"),
        ({**_TLS, "mechanisms": ("certificate",)}, "tlsTrustStore"),
        ({"permissions_file": "/p"}, "nobody"),
        ({"users_file": "/u"}, "nobody"),
        ({"tls_trust": "/t"}, "tlsProviderFactoryClass"),
        ({"tls": True}, "tlsCertificatePath"),
        ({"sasl_ids": "("}, "no pattern"),
        ({"tls_look_s": 0.0}, "above 0"),
    ],
)
def test_n2_settings_that_protect_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        SecuritySettings(**given)


def test_the_original_s_keys_are_read() -> None:
    values = {
        "tlsProvider": "OpenSSL",
        "tlsProviderFactoryClass": TLS_FACTORY,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": "/k.pem",
        "tlsCertificatePath": "/c.pem",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": "/t.pem",
        "tlsClientAuthentication": "true",
        "tlsCertFilesRefreshDurationSeconds": "300",
        "bookieAuthProviderFactoryClass": SASL_FACTORY,
        "saslJaasClientAllowedIds": "me",
        "usersFile": "/u.toml",
    }
    loaded = SCHEMA.read({**NEEDED, **values})
    assert loaded.ignored == ()
    security = loaded.settings.security
    assert (security.tls, security.tls_required, security.mechanisms, security.sasl_ids) == (
        True,
        True,
        ("sasl",),
        "me",
    )
    assert (security.tls_key, security.tls_certificate, security.tls_trust) == ("/k.pem", "/c.pem", "/t.pem")
    assert security.tls_ask_certificate and security.tls_look_s == 300
    assert SCHEMA.read({**NEEDED, **values, "authMechanisms": "scram-sha-256"}).settings.security.mechanisms == (
        "scram-sha-256",
    )
    assert SCHEMA.read(SCHEMA.texts(loaded.settings)).settings == loaded.settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tlsProviderFactoryClass", "com.example.Tls"),
        ("bookieAuthProviderFactoryClass", "org.apache.bookkeeper.tls.BookieAuthZFactory"),
        ("tlsKeyStoreType", "JKS"),
        ("tlsTrustStoreType", "PKCS12"),
        ("tlsProvider", "Other"),
        ("tlsEnabledProtocols", "TLSv1.1"),
        ("tlsEnabledCipherSuites", "NULL"),
        ("saslJaasBookieSectionName", "Other"),
        ("authMechanisms", "gssapi"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(key: str, value: str) -> None:
    good = {
        "tlsProviderFactoryClass": TLS_FACTORY,
        "tlsKeyStore": "/k",
        "tlsCertificatePath": "/c",
        "usersFile": "/u",
        "authMechanisms": "sasl",
    }
    with pytest.raises(UsageError, match=key):
        SCHEMA.read({**NEEDED, **good, key: value})


@pytest.mark.rule("N2")
async def test_n2_a_bookie_does_not_start_with_files_that_are_no_good(home: Home, tmp_path: Path) -> None:
    keys = KeyFiles.make(tmp_path / "keys")
    nothing = secret_file(tmp_path / "nothing", "")
    readable = secret_file(tmp_path / "readable", "[users]\nbookkeeper = 'secret'\n", mode=0o644)
    for security in (
        keys.bookie_settings(tls_certificate="/no/such/file"),
        keys.bookie_settings(tls_key=keys.client.key),
        keys.bookie_settings(tls_trust=nothing),
        SecuritySettings(mechanisms=("sasl",), users_file=nothing),
        SecuritySettings(mechanisms=("sasl",), users_file="/no/such/file"),
        SecuritySettings(mechanisms=("sasl",), users_file=readable),
        SecuritySettings(mechanisms=("sasl",), users_file=keys.users(), permissions_file=keys.users()),
    ):
        with pytest.raises(UsageError):
            await home.start(security=security)


@pytest.mark.rule("N10")
@pytest.mark.parametrize(
    "text",
    [
        "[users]\nbookkeeper = 'the secret\n",
        "[users]\nbookkeeper = ['the secret', 'the secret', 'the secret']\n",
        "[users]\nbookkeeper = ['the secret', '']\n",
        "[users]\nbookkeeper = ['the secret', 1]\n",
        "users = 'the secret'\n",
        "[users]\n[others]\na = 'the secret'\n",
    ],
)
def test_n10_a_damaged_file_of_users_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_users(text, "/u.toml")
    assert "the secret" not in str(refused.value) + repr(refused.value) + repr(refused.value.__context__)


def test_permissions_by_who_somebody_is() -> None:
    found = parse_permissions(
        'default = ["read"]\nanonymous = []\n[users]\na = ["admin"]\n[certificates]\na = ["append", "repair"]\n', "/p"
    )
    assert found.of(PeerIdentity("user", "a")) == ALL
    assert found.of(PeerIdentity("user", "b")) == Permission.READ
    assert found.of(PeerIdentity("certificate", "a")) == Permission.APPEND | Permission.REPAIR
    assert found.of(ANONYMOUS) == Permission.NONE
    assert parse_permissions("", "/p").of(PeerIdentity("user", "a")) == ORIGINAL


@pytest.mark.rule("N2")
@pytest.mark.parametrize("text", ["default = 'read'", "default = ['reed']", "users = 1", "[user]\na = []", "x ="])
def test_n2_damaged_permissions_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_permissions(text, "/p")
