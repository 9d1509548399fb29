"""A client before its first request: real bookies, and some that lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tallystick
from support.between import listening_between
from support.bookies import Home
from support.certificates import copy_files, secret_file
from support.keyed import OLD_SECRET, SECRET, USER, KeyFiles
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.ledger import wire_handshake
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.wire import v3, v3_responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import BookieUnavailable, UsageError
from tallystick.pipeline.bookies import bookie_client, keys_of
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time
_BOTH = ("scram-sha-256", "sasl")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFiles:
    return KeyFiles.make(tmp_path_factory.mktemp("keys"))


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    await made.found()
    return made


@asynccontextmanager
async def client_of(
    bookie: Bookie | tuple[str, int], security: ClientSecurity | None, *offers: str, heard: list[Event] | None = None
) -> AsyncIterator[BookieClient]:
    """A client that knows the bookie's address, and by what it says that it lets clients show who they are."""
    address = bookie if isinstance(bookie, tuple) else bookie.address

    async def resolve(_: str) -> tuple[str, int]:
        return address

    async def offered(_: str) -> tuple[str, ...]:
        return offers

    outside = this_machine(Events() if heard is None else Events(heard.append))
    client = BookieClient(outside, resolve, ClientSettings(security=security, connect_timeout_s=2.0), offers=offered)
    try:
        yield client
    finally:
        await client.close()


async def reads(
    bookie: Bookie | tuple[str, int], security: ClientSecurity | None, *offers: str, heard: list[Event] | None = None
) -> Code | str:
    """The code of a read, or why the bookie cannot be asked."""
    async with client_of(bookie, security, *offers, heard=heard) as client:
        try:
            return (await client.read("b0", 1, 0)).code
        except BookieUnavailable as error:
            return error.message


def said_no(code: Code | str) -> bool:
    return code in (Code.NO_LEDGER, Code.NO_ENTRY)


@pytest.mark.rule("N5")
async def test_n5_with_tls_nothing_is_sent_to_a_bookie_that_has_none(home: Home, keys: KeyFiles) -> None:
    async with home.running() as bookie:
        assert "does not encrypt" in str(await reads(bookie, ClientSecurity(tls_trust=keys.authority.trust)))
        assert bookie.counts.reads == 0


@pytest.mark.rule("N5")
async def test_n5_the_certificate_must_be_of_the_registered_host_and_of_a_trusted_authority(
    home: Home, keys: KeyFiles, tmp_path: Path
) -> None:
    mine = ClientSecurity(tls_trust=keys.authority.trust)
    elsewhere = keys.authority.certify("elsewhere", hosts="DNS:b0,IP:192.0.2.1")
    expired = keys.authority.certify("expired", days=-1)
    stranger = KeyFiles.make(tmp_path / "stranger").bookie
    for certified, said in (
        (elsewhere, "IP address mismatch"),
        (expired, "expired"),
        (stranger, "unable to get local"),
    ):
        security = keys.bookie_settings(tls_certificate=certified.certificate, tls_key=certified.key)
        async with home.running(security=security) as bookie:
            assert said in str(await reads(bookie, mine))
            assert bookie.counts.reads == 0
    async with home.running(security=keys.bookie_settings()) as bookie:
        assert said_no(await reads(bookie, mine))
        assert said_no(await reads(("localhost", bookie.address[1]), mine))


@pytest.mark.rule("N5")
async def test_n5_a_bookie_that_asks_nobody_is_not_believed_unless_that_is_written(home: Home, keys: KeyFiles) -> None:
    security, heard = keys.client_settings(tls_trust=None), list[Event]()
    async with home.running() as bookie:
        assert "asks nobody who he is" in str(await reads(bookie, security))
        assert bookie.counts.reads == 0
        for _ in range(2):
            assert said_no(await reads(bookie, replace(security, auth_required=False), heard=heard))
        assert [event.kind for event in heard] == ["bookie without authentication"] * 2


@pytest.mark.parametrize("secret", [SECRET, OLD_SECRET])
@pytest.mark.parametrize("mechanism", _BOTH)
async def test_a_user_shows_a_secret_within_tls_and_without(
    home: Home, keys: KeyFiles, mechanism: str, secret: str
) -> None:
    for bookie_tls, trust in ((True, keys.authority.trust), (False, None)):
        given: dict[str, Any] = {"mechanisms": (mechanism,), "users_file": keys.users()}
        security = keys.bookie_settings(**given) if bookie_tls else SecuritySettings(**given)
        mine = keys.client_settings(secret, tls_trust=trust)
        async with home.running(security=security) as bookie:
            assert said_no(await reads(bookie, mine, mechanism))
            assert "does not let this client in" in str(
                await reads(bookie, keys.client_settings("no", tls_trust=trust), mechanism)
            )


@pytest.mark.rule("N5", "N2")
async def test_n5_the_strongest_mechanism_of_both_lists_is_taken_and_never_another(home: Home, keys: KeyFiles) -> None:
    certified = {"tls_certificate": keys.client.certificate, "tls_key": keys.client.key}
    everything = keys.client_settings(**certified)
    security = keys.bookie_settings(mechanisms=("sasl", "scram-sha-256", "certificate"), users_file=keys.users())
    async with home.running(security=security) as bookie:
        for offers, own, came in (
            (("sasl", "scram-sha-256", "certificate"), everything, "certificate client"),
            (("sasl", "certificate"), everything, "certificate client"),
        ):
            assert said_no(await reads(bookie, own, *offers))
            assert [row["identity"] for row in bookie.authentication()] == [came]
        weak = replace(everything, mechanisms=("sasl",))
        assert "takes nothing by which" in str(await reads(bookie, weak, "scram-sha-256"))
        assert "takes nothing by which" in str(await reads(bookie, replace(weak, auth_required=False), "scram-sha-256"))
        only_scram = keys.client_settings(mechanisms=("scram-sha-256",))
        assert "does not say by what" in str(await reads(bookie, only_scram))  # as an original would


async def test_where_nobody_knows_what_a_bookie_takes_the_strongest_is_tried_first(
    home: Home, keys: KeyFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a worker of Spark, which knows the addresses alone."""
    password = keys.client_settings().password_file
    monkeypatch.setenv("TALLY_SECURITY", str(tmp_path / "security.toml"))
    for mechanisms, own, does in (
        (("sasl",), "scram-sha-256,sasl", True),
        (("scram-sha-256",), "scram-sha-256,sasl", True),
        (("sasl",), "scram-sha-256", False),
    ):
        lines = {"user": USER, "passwordFile": password, "authMechanisms": own}
        secret_file(tmp_path / "security.toml", "[security]\n" + "".join(f"{k} = {v!r}\n" for k, v in lines.items()))
        security = SecuritySettings(mechanisms=mechanisms, users_file=keys.users())
        async with home.running(security=security) as bookie:
            client = bookie_client({"b0": bookie.address})
            try:
                assert said_no((await client.read("b0", 1, 0)).code) == does
            except BookieUnavailable:
                assert not does
            finally:
                await client.close()


async def test_keys_come_with_the_uri_of_the_metadata(
    home: Home, keys: KeyFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_SECURITY", str(tmp_path / "of-somebody-else"))  # the URI goes before it
    mine = keys.client_settings()
    names = {"tlsTrustStore": mine.tls_trust, "user": USER, "passwordFile": mine.password_file}
    options = "&".join(f"{name}={value}" for name, value in names.items())
    lines = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    whole = secret_file(tmp_path / "security.toml", f"[security]\n{lines}")
    security = keys.bookie_settings(mechanisms=("scram-sha-256",), users_file=keys.users())
    async with home.running(security=security) as bookie:
        for query in (options, f"security={whole}"):
            uri = f"memory://{home.cluster}?{query}"
            client = bookie_client({"b0": bookie.address}, keys_of(uri))
            assert said_no((await client.read("b0", 1, 0)).code)
            await client.close()
            async with tallystick.connect(uri) as bk, bk.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
                await writer.append(b"with keys")
        with pytest.raises(UsageError, match="given together"):
            await tallystick.connect(f"memory://{home.cluster}?user={USER}")
        with pytest.raises(UsageError, match="give it alone"):
            await tallystick.connect(f"memory://{home.cluster}?security={whole}&{options}")


@pytest.mark.rule("N5")
async def test_n5_scram_goes_before_digest_md5(home: Home, keys: KeyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = list[str]()
    original = wire_handshake.auth

    def hear(number: int, plugin: str, payload: bytes) -> bytes:
        spoken.append(plugin)
        return original(number, plugin, payload)

    monkeypatch.setattr(wire_handshake, "auth", hear)
    security = SecuritySettings(mechanisms=("sasl", "scram-sha-256"), users_file=keys.users())
    async with home.running(security=security) as bookie:
        mine = keys.client_settings(tls_trust=None, mechanisms=("sasl", "scram-sha-256"))
        assert said_no(await reads(bookie, mine, "sasl", "scram-sha-256"))
    assert set(spoken) == {"scram-sha-256"}


@asynccontextmanager
async def liar(*answers: bytes) -> AsyncIterator[tuple[str, int]]:
    """A server that answers each read of its socket with the next of these, and then nothing."""

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            if not await reader.read(4096):
                break
            writer.write(answer)
        await reader.read()

    async with listening_between(visit) as port:
        yield "127.0.0.1", port


def starts_tls(number: int = 1, code: Code = Code.OK) -> bytes:
    return v3_responses.encode_response(v3_responses.StartTlsResponse(number, code))


def auth(payload: bytes, number: int = 2, plugin: bytes = b"sasl") -> bytes:
    return v3_responses.encode_response(v3_responses.AuthResponse(number, Code.OK, plugin, payload))


TLS_FAILED = v3_responses.encode_response(v3_responses.RefusedResponse(1, v3.Operation.START_TLS, Code.IO_ERROR))
CHALLENGE = b'realm="bookkeeper",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess'


@pytest.mark.rule("N5", "N13")
@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((starts_tls() + b"\x00",), "bytes came that nobody asked for"),  # behind the plaintext answer
        ((starts_tls() + auth(b""),), "bytes came that nobody asked for"),
        ((starts_tls(7),), "nobody asked for"),
        ((auth(b"", 1),), "nobody asked for"),
        ((b"\x00\x00\x00\x01\x00",), "no message"),
        ((b"\x7f\xff\xff\xff" + bytes(70_000),), "more came"),
        ((starts_tls(), b"no TLS at all"), "wrong version number"),
    ],
)
async def test_n5_bytes_of_whoever_sits_between_end_the_connection(
    keys: KeyFiles, answers: tuple[bytes, ...], said: str
) -> None:
    async with liar(*answers) as address:
        assert said in str(await reads(address, ClientSecurity(tls_trust=keys.authority.trust)))


@pytest.mark.rule("N5", "N13")
@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((auth(CHALLENGE), auth(b"rspauth=00", 3)), "did not show that it knows the secret"),
        ((auth(CHALLENGE), auth(CHALLENGE, 3)), "did not show that it knows the secret"),
        ((auth(CHALLENGE.replace(b"md5-sess", b"md5")),), "no kind that this client speaks"),
        ((auth(CHALLENGE.replace(b'realm="book', b'realm="cook')),), "another realm"),
        ((auth(CHALLENGE, 9),), "nobody asked for"),
        ((auth(CHALLENGE, plugin=b"other"),), "another plugin"),
        ((auth(b"=,="),), "not of DIGEST-MD5's form"),
        ((auth(CHALLENGE) + auth(CHALLENGE, 3), b""), "did not show"),
        ((TLS_FAILED * 2,), "answers a START_TLS"),
    ],
)
async def test_n5_a_bookie_that_does_not_know_the_secret_is_not_believed(
    keys: KeyFiles, answers: tuple[bytes, ...], said: str
) -> None:
    async with liar(*answers) as address:
        assert said in str(await reads(address, keys.client_settings(tls_trust=None), "sasl"))


async def test_a_silent_bookie_costs_the_time_to_connect_alone(keys: KeyFiles) -> None:
    async with liar() as address, asyncio.timeout(10):
        assert await reads(address, ClientSecurity(tls_trust=keys.authority.trust))


async def test_changed_files_of_a_client_count_for_its_next_connection(
    home: Home, keys: KeyFiles, tmp_path: Path
) -> None:
    certificate, key, password = tmp_path / "me.pem", tmp_path / "me.key", tmp_path / "password"
    copy_files(KeyFiles.make(tmp_path / "stranger").client, certificate, key)
    secret_file(password, "no")
    given = {"tls_certificate": str(certificate), "tls_key": str(key), "password_file": str(password)}
    mine = keys.client_settings(**given, mechanisms=("sasl",))
    security = keys.bookie_settings(tls_ask_certificate=True, mechanisms=("sasl",), users_file=keys.users())
    async with home.running(security=security) as bookie, client_of(bookie, mine, "sasl") as client:
        with pytest.raises(BookieUnavailable):
            await client.read("b0", 1, 0)
        copy_files(keys.client, certificate, key)
        secret_file(password, SECRET)
        async with asyncio.timeout(10):
            while True:
                try:
                    assert said_no((await client.read("b0", 1, 0)).code)
                    break
                except BookieUnavailable:
                    await asyncio.sleep(0.1)


@pytest.mark.rule("N10")
async def test_n10_no_secret_is_in_what_a_client_or_a_bookie_says(home: Home, keys: KeyFiles) -> None:
    heard = home.events
    security = keys.bookie_settings(mechanisms=_BOTH, users_file=keys.users())
    said = [repr(security)]
    async with home.running(security=security) as bookie:
        for mine in (keys.client_settings(), keys.client_settings("another one")):
            for mechanism in _BOTH:
                said.append(str(await reads(bookie, replace(mine, mechanisms=(mechanism,)), mechanism, heard=heard)))
            said += [repr(mine), str(ClientSettings(security=mine))]
        said += [repr(bookie.authentication()), repr(vars(bookie)), *map(repr, heard)]
    text = "\n".join(said)
    assert USER in text
    for secret in (SECRET, OLD_SECRET, "another one"):
        assert secret not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[security]\n", "nothing would be protected"),
        ("[security]\nuser = 'a'\n", "passwordFile"),
        ("[security]\npasword = 'a'\n", "nobody knows"),
        ("[security]\ntlsCertificatePath = '/a'\ntlsKeyStore = '/b'\n", "tlsTrustStore"),
        ("[security]\ntlsTrustStore = '/a'\nauthMechanisms = 'gssapi'\n", "Kerberos"),
        ("[security]\ntlsTrustStore = '/a'\nauthRequired = 'perhaps'\n", "authRequired"),
    ],
)
def test_a_file_of_security_that_protects_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "security.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        ClientSecurity.load(str(tmp_path / "security.toml"))


@pytest.mark.rule("N2")
async def test_n2_a_client_is_not_made_with_files_that_are_no_good(
    home: Home, keys: KeyFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = home.settings.metadata_uri
    readable = secret_file(tmp_path / "readable", SECRET, mode=0o644)
    for security in (
        ClientSecurity(tls_trust="/no/such/file"),
        keys.client_settings(password_file="/no/such/file"),
        keys.client_settings(password_file=readable),
        keys.client_settings(tls_certificate=keys.bookie.certificate, tls_key=keys.client.key),
    ):
        with pytest.raises(UsageError):
            await tallystick.connect(uri, settings=ClientSettings(security=security))
    monkeypatch.setenv("TALLY_SECURITY", str(tmp_path / "nowhere.toml"))
    with pytest.raises(UsageError, match="cannot read"):
        await tallystick.connect(uri)


async def test_a_cluster_with_keys_by_the_file_that_the_environment_names(
    home: Home, keys: KeyFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = keys.client_settings()
    lines = {"tlsTrustStore": mine.tls_trust, "user": USER, "passwordFile": mine.password_file}
    file = secret_file(tmp_path / "security.toml", "[security]\n" + "".join(f"{k} = {v!r}\n" for k, v in lines.items()))
    security = keys.bookie_settings(mechanisms=_BOTH, users_file=keys.users())
    async with home.running(security=security):
        uri, payloads = home.settings.metadata_uri, [bytes([entry]) * 40_000 for entry in range(200)]
        monkeypatch.setenv("TALLY_SECURITY", file)
        for wire in ("auto", "v2", "v3"):
            async with tallystick.connect(uri, settings=ClientSettings(wire=wire)) as bk:
                async with bk.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
                    await writer.append_batch(payloads)
                async with bk.open_ledger(writer.id) as reader:
                    assert [entry.data async for entry in reader.read(0, 199)] == payloads
