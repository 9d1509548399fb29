"""TLS and SASL's DIGEST-MD5 between the originals' bookie and client and ours: bytes on both sides decide.

One bookie and one client a pairing, as each of the originals' takes a process with its memory. The secrets of an
original are in a JAAS file of ZooKeeper's ``DigestLoginModule``, those of ours in files of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import tallystick
from support.certificates import Authority, Certified, secret_file
from support.content import payload
from support.java import SMALL, Java
from support.peers import JAVA_KEYS, Bookie, Driver, PeerError, ZooKeeper
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.errors import NotEnoughBookies
from tallystick.runtime.events import Events

SECRET = "s3cret of both"
START_TLS = bytes.fromhex("0000000b0a06080310091801d20600")
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
_JAVA_TLS = {
    "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
    "tlsProvider": "JDK",
    "tlsKeyStoreType": "PEM",
    "tlsTrustStoreType": "PEM",
    "tlsClientAuthentication": "true",
}


class KeyedBookie(Bookie):
    """A bookie that says nothing to who has not begun TLS."""

    async def probe(self) -> None:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(START_TLS)
                await reader.readexactly(4)
            finally:
                writer.close()


@dataclass
class Keys:
    """The files of a cluster in which everybody shows who it is."""

    folder: Path
    authority: Authority
    bookie: Certified
    client: Certified

    @classmethod
    def make(cls, folder: Path) -> Keys:
        authority = Authority.make(folder)
        return cls(folder, authority, authority.certify("bookie"), authority.certify("client"))

    def tls(self, certified: Certified) -> dict[str, object]:
        return {
            **_JAVA_TLS,
            "tlsCertificatePath": certified.certificate,
            "tlsKeyStore": certified.key,
            "tlsTrustStore": self.authority.trust,
        }

    def jaas(self, secret: str = SECRET) -> tuple[str, ...]:
        file = self.folder / f"jaas-{len(list(self.folder.glob('jaas-*')))}.conf"
        sections = (
            ("Bookie", f'user_bookkeeper="{secret}"'),
            ("BookKeeper", f'username="bookkeeper" password="{secret}"'),
        )
        secret_file(file, "".join(f"{name} {{ {_MODULE} {options}; }};\n" for name, options in sections))
        return (*SMALL, f"-Djava.security.auth.login.config={file}")

    def ours(self, secret: str = SECRET, **changes: object) -> ClientSettings:
        password = secret_file(self.folder / f"password-{len(secret)}", secret)
        own = {"mechanisms": ("sasl",), "user": "bookkeeper", "password_file": password, **changes}
        return ClientSettings(
            security=ClientSecurity(
                tls_trust=self.authority.trust,
                tls_certificate=self.client.certificate,
                tls_key=self.client.key,
                **own,  # type: ignore[arg-type]
            )
        )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys.make(tmp_path_factory.mktemp("keys"))


@pytest.fixture
async def service(java: Java, tmp_path: Path) -> AsyncIterator[ZooKeeper]:
    started = await ZooKeeper.start(java, tmp_path)
    yield started
    started.kill()


@pytest.fixture
async def our_bookie(service: ZooKeeper, keys: Keys, tmp_path: Path) -> AsyncIterator[tuple[str, Bookie]]:
    uri = await service.cluster("ours")
    users = secret_file(tmp_path / "users.toml", f'[users]\nbookkeeper = "{SECRET}"\n')
    settings = {**keys.tls(keys.bookie), "authMechanisms": "sasl", "usersFile": users}
    bookie = KeyedBookie.ours(uri, tmp_path, settings=settings)
    await bookie.start()
    yield uri, bookie
    bookie.kill()


@pytest.fixture
async def original_bookie(
    java: Java, service: ZooKeeper, keys: Keys, tmp_path: Path
) -> AsyncIterator[tuple[str, Bookie]]:
    uri = await service.cluster("original")
    plugin = {"bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"}
    settings = {**JAVA_KEYS, **keys.tls(keys.bookie), **plugin}
    bookie = KeyedBookie.original(java, uri, tmp_path, flags=keys.jaas(), settings=settings)
    await bookie.start()
    yield uri, bookie
    bookie.kill()


async def original_client(java: Java, uri: str, keys: Keys, folder: Path, secret: str, **changes: object) -> Driver:
    plugin = {"clientAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"}
    settings = {**keys.tls(keys.client), **plugin, "numIOThreads": 1, "numWorkerThreads": 1, **changes}
    return await Driver.original(java, uri, folder, settings, flags=keys.jaas(secret))


@pytest.mark.rule("N5", "N2")
@pytest.mark.parametrize("v2", ["false", "true"], ids=["v3", "v2"])
async def test_an_original_client_shows_our_bookie_who_it_is(
    java: Java, our_bookie: tuple[str, Bookie], keys: Keys, tmp_path: Path, v2: str
) -> None:
    uri, _ = our_bookie
    client = await original_client(
        java, uri, keys, tmp_path, SECRET, useV2WireProtocol=v2, tlsHostnameVerificationEnabled="true"
    )
    try:
        ledger = (await client.ask("create", e=1, qw=1, qa=1))["ledger"]
        assert (await client.ask("append", ledger=ledger, seed=1, count=50, size=2000))["last"] == "49"
        await client.ask("close", ledger=ledger)
        async with tallystick.connect(uri, settings=keys.ours()) as ours, ours.open_ledger(int(ledger)) as reader:
            assert [entry.data async for entry in reader.read(0, 49)] == [
                payload(1, entry, 2000) for entry in range(50)
            ]
    finally:
        client.kill()


@pytest.mark.rule("N2")
async def test_an_original_client_with_another_secret_gets_nothing_from_our_bookie(
    java: Java, our_bookie: tuple[str, Bookie], keys: Keys, tmp_path: Path
) -> None:
    uri, _ = our_bookie
    client = await original_client(java, uri, keys, tmp_path, "another", addEntryTimeoutSec=2)
    try:
        ledger = (await client.ask("create", e=1, qw=1, qa=1))["ledger"]
        with pytest.raises(PeerError) as failed:
            await client.ask("append", ledger=ledger, seed=1, count=1, size=10)
        assert failed.value.code in (-102, -6, -8)
    finally:
        client.kill()


@pytest.mark.rule("N5")
@pytest.mark.parametrize("wire", ["auto", "v3", "v2"])
async def test_our_client_shows_an_original_bookie_who_it_is(
    original_bookie: tuple[str, Bookie], keys: Keys, wire: str
) -> None:
    uri, _ = original_bookie
    async with tallystick.connect(uri, settings=replace(keys.ours(), wire=wire)) as client:
        async with client.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
            await writer.append_batch(payload(2, entry, 2000) for entry in range(50))
        async with client.open_ledger(writer.id) as reader:
            assert [entry.data async for entry in reader.read(0, 49)] == [
                payload(2, entry, 2000) for entry in range(50)
            ]


@pytest.mark.rule("N5")
async def test_our_client_with_another_secret_or_none_gets_nothing_from_an_original_bookie(
    original_bookie: tuple[str, Bookie], keys: Keys
) -> None:
    uri, _ = original_bookie
    heard = list[str]()
    settings = keys.ours("another")
    for each in (settings, ClientSettings(), keys.ours(user=None, password_file=None, mechanisms=("certificate",))):
        each = ClientSettings(security=each.security, connect_timeout_s=2.0, add_timeout_s=2.0, degraded_writes=False)
        async with tallystick.connect(
            uri, settings=each, events=Events(lambda event: heard.append(str(event)))
        ) as client:
            writer = await client.create_ledger(1, write_quorum=1, ack_quorum=1)
            with pytest.raises((NotEnoughBookies, tallystick.TallyError)):
                await writer.append(b"never")


@pytest.mark.rule("N5")
@pytest.mark.parametrize("v2", ["false", "true"], ids=["v3", "v2"])
async def test_an_original_client_comes_in_by_its_certificate(
    java: Java, service: ZooKeeper, keys: Keys, tmp_path: Path, v2: str
) -> None:
    """It has no plugin, and sends no AUTH."""
    uri = await service.cluster("certificates")
    bookie = KeyedBookie.ours(uri, tmp_path, settings={**keys.tls(keys.bookie), "authMechanisms": "certificate"})
    await bookie.start()
    settings = {**keys.tls(keys.client), "numIOThreads": 1, "numWorkerThreads": 1, "useV2WireProtocol": v2}
    client = await Driver.original(java, uri, tmp_path, settings)
    try:
        ledger = (await client.ask("create", e=1, qw=1, qa=1))["ledger"]
        assert (await client.ask("append", ledger=ledger, seed=1, count=500, size=20_000))["last"] == "499"
        await client.ask("close", ledger=ledger)
        by_certificate = keys.ours(user=None, password_file=None, mechanisms=("certificate",))
        async with tallystick.connect(uri, settings=by_certificate) as ours, ours.open_ledger(int(ledger)) as reader:
            found = [entry.data async for entry in reader.read(0, 499)]
        assert found == [payload(1, entry, 20_000) for entry in range(500)]
    finally:
        client.kill()
        bookie.kill()


@pytest.mark.rule("N5")
async def test_our_client_shows_its_certificate_to_an_original_bookie(
    java: Java, service: ZooKeeper, keys: Keys, tmp_path: Path
) -> None:
    uri = await service.cluster("certificates-original")
    bookie = KeyedBookie.original(java, uri, tmp_path, settings={**JAVA_KEYS, **keys.tls(keys.bookie)})
    await bookie.start()
    by_certificate = keys.ours(user=None, password_file=None, mechanisms=("certificate",))
    try:
        async with tallystick.connect(uri, settings=by_certificate) as client:
            async with client.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
                await writer.append_batch(payload(2, entry, 20_000) for entry in range(500))
            async with client.open_ledger(writer.id) as reader:
                found = [entry.data async for entry in reader.read(0, 499)]
        assert found == [payload(2, entry, 20_000) for entry in range(500)]
    finally:
        bookie.kill()


def only(pairing: str, settings: dict[str, object]) -> dict[str, object]:
    """The settings of TLS without a certificate of the client, or none of them."""
    return {**settings, "tlsClientAuthentication": "false"} if pairing == "tls" else {}


@pytest.mark.rule("N5")
@pytest.mark.parametrize("pairing", ["tls", "sasl"])
async def test_an_original_client_with_tls_or_sasl_alone_and_our_bookie(
    java: Java, service: ZooKeeper, keys: Keys, tmp_path: Path, pairing: str
) -> None:
    uri = await service.cluster(f"ours-{pairing}")
    users = secret_file(tmp_path / "users.toml", f'[users]\nbookkeeper = "{SECRET}"\n')
    asks = {"authMechanisms": "sasl", "usersFile": users} if pairing == "sasl" else {}
    bookie = KeyedBookie.ours(uri, tmp_path, settings={**only(pairing, keys.tls(keys.bookie)), **asks})
    await bookie.start()
    plugin = {"clientAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"}
    settings = {**only(pairing, keys.tls(keys.client)), **(plugin if pairing == "sasl" else {})}
    threads = {"numIOThreads": 1, "numWorkerThreads": 1, "addEntryTimeoutSec": 2}
    client = await Driver.original(java, uri, tmp_path, {**settings, **threads}, flags=keys.jaas())
    stranger = await Driver.original(java, uri, tmp_path, dict(threads), flags=SMALL)
    try:
        ledger = (await client.ask("create", e=1, qw=1, qa=1))["ledger"]
        assert (await client.ask("append", ledger=ledger, seed=1, count=50, size=2000))["last"] == "49"
        await client.ask("close", ledger=ledger)
        other = (await stranger.ask("create", e=1, qw=1, qa=1))["ledger"]
        with pytest.raises(PeerError) as failed:  # neither TLS nor a key
            await stranger.ask("append", ledger=other, seed=1, count=1, size=10)
        assert failed.value.code in (-102, -6, -8)
        ours = tallystick.connect(uri, settings=alone(pairing, keys))
        async with ours as client_of_ours, client_of_ours.open_ledger(int(ledger)) as reader:
            entries = [entry.data async for entry in reader.read(0, 49)]
        assert entries == [payload(1, entry, 2000) for entry in range(50)]
    finally:
        client.kill()
        stranger.kill()
        bookie.kill()


def alone(pairing: str, keys: Keys) -> ClientSettings:
    """A client of ours with TLS or with a key, and not both."""
    if pairing == "tls":
        return ClientSettings(security=ClientSecurity(tls_trust=keys.authority.trust))
    password = secret_file(keys.folder / "password-alone", SECRET)
    return ClientSettings(security=ClientSecurity(user="bookkeeper", password_file=password, mechanisms=("sasl",)))


@pytest.mark.rule("N5")
@pytest.mark.parametrize("pairing", ["tls", "sasl"])
async def test_our_client_with_tls_or_sasl_alone_and_an_original_bookie(
    java: Java, service: ZooKeeper, keys: Keys, tmp_path: Path, pairing: str
) -> None:
    uri = await service.cluster(f"original-{pairing}")
    plugin = {"bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"}
    settings = {**only(pairing, keys.tls(keys.bookie)), **(plugin if pairing == "sasl" else {})}
    bookie = KeyedBookie.original(java, uri, tmp_path, flags=keys.jaas(), settings={**JAVA_KEYS, **settings})
    await bookie.start()
    try:
        for wire in ("auto", "v2"):
            async with tallystick.connect(uri, settings=replace(alone(pairing, keys), wire=wire)) as client:
                async with client.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
                    await writer.append_batch(payload(2, entry, 2000) for entry in range(50))
                async with client.open_ledger(writer.id) as reader:
                    entries = [entry.data async for entry in reader.read(0, 49)]
            assert entries == [payload(2, entry, 2000) for entry in range(50)]
    finally:
        bookie.kill()
