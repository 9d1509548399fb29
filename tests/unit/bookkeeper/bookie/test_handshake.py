"""What a bookie does before it knows its peer: real ones, and frames by hand."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.bookies import KEY, Home, Peer, adds, read, talking
from support.keyed import OLD_SECRET, SECRET, START_TLS, USER, KeyFiles, ask_v3, encrypted, one_add, passwords, show
from support.strangers import OpenGate, serve_all
from support.v3_frames import adds_v3, read_v3, request_v3
from support.waiting import until
from tallystick.bookkeeper.bookie import handshakes, session_handshake
from tallystick.bookkeeper.bookie.handshake import Handshake
from tallystick.bookkeeper.wire import v2, v3, v3_responses
from tallystick.bookkeeper.wire.auth import DISABLED, decode_message, encode_message
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest_md5 import DigestClient
from tallystick.bookkeeper.wire.scram import ScramClient
from tallystick.runtime.tls import CONNECTION_BYTES

SOON_S = 3.0  # before a handshake would be too late
EXPECTED = v3_responses.RefusedResponse
_SASL = {"mechanisms": ("sasl", "scram-sha-256")}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFiles:
    return KeyFiles.make(tmp_path_factory.mktemp("keys"))


def empty_auth(number: int = 1, plugin: bytes = b"sasl") -> bytes:
    return request_v3(v3.AuthRequest, plugin, b"", number=number)


# TLS


@pytest.mark.rule("N5")
async def test_n5_all_that_comes_before_tls_is_refused_but_start_tls(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=keys.bookie_settings()) as bookie:
        async with talking(bookie) as peer:
            for request in (adds_v3(1, [0]), read_v3(1, 0), read_v3(1, 0, KEY), request_v3(v3.BookieInfoRequest)):
                answer = await ask_v3(peer, request)
                assert isinstance(answer, EXPECTED) and answer.code == Code.UNAUTHORIZED
        for frame in (adds(1, [0]), read(1, 0), b"\x00\x00\x00\x14\x02\x09" + bytes(18)):
            async with talking(bookie) as peer:
                assert await peer.ask(frame) is None
        assert bookie.counts.adds == bookie.counts.reads == 0


@pytest.mark.rule("N5")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_n5_an_encrypted_connection_serves_both_versions(
    home: Home, keys: KeyFiles, version: ssl.TLSVersion
) -> None:
    context = keys.context()
    context.minimum_version = context.maximum_version = version
    async with home.running(security=keys.bookie_settings()) as bookie:
        peer = await encrypted(bookie, context)
        answer = await ask_v3(peer, adds_v3(1, [0], bytes(200_000)))
        assert isinstance(answer, v3_responses.AddResponse) and answer.code == Code.OK
        assert await one_add(peer, 2) == Code.OK
        assert len(await peer.ask(read(1, 0)) or b"") > 200_000
        await peer.close()


@pytest.mark.rule("N5")
async def test_n5_older_tls_is_refused(home: Home, keys: KeyFiles) -> None:
    context = keys.context()
    with pytest.warns(DeprecationWarning):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with home.running(security=keys.bookie_settings()) as bookie:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await encrypted(bookie, context)
        assert bookie.counts.malformed == 1


@pytest.mark.rule("N5")
@pytest.mark.parametrize(
    "behind", [adds_v3(1, [0]), adds(1, [0]), START_TLS, request_v3(v3.AuthRequest, b"sasl", b"x")]
)
async def test_n5_bytes_behind_start_tls_close_the_connection(home: Home, keys: KeyFiles, behind: bytes) -> None:
    async with home.running(security=keys.bookie_settings(**_SASL, users_file=keys.users())) as bookie:
        for together in (True, False):
            async with talking(bookie) as peer, asyncio.timeout(SOON_S):
                peer.writer.write(START_TLS + behind if together else START_TLS)
                await peer.frame()
                if not together:
                    peer.writer.write(behind)
                assert await peer.reader.read() in (b"", await _refusal(behind))
        assert bookie.counts.adds == 0


async def _refusal(behind: bytes) -> bytes:
    """An AUTH is answered before the connection is closed for it."""
    return v3_responses.encode_response(EXPECTED(1, v3.Operation.AUTH, Code.UNAUTHORIZED))


async def test_a_first_auth_without_a_token_may_come_around_start_tls_as_originals_send_it(
    home: Home, keys: KeyFiles
) -> None:
    early_v2 = v2.AuthFrame(encode_message("sasl", b"")).encode()
    async with home.running(security=keys.bookie_settings(**_SASL, users_file=keys.users())) as bookie:
        for frames in (empty_auth() + START_TLS, START_TLS + empty_auth(), START_TLS + early_v2):
            peer = Peer(*await asyncio.open_connection(*bookie.address))
            answer = await ask_v3(peer, frames)
            assert isinstance(answer, v3_responses.StartTlsResponse)
            await peer.writer.start_tls(keys.context(), server_hostname="127.0.0.1")
            challenge = await peer.frame()
            assert challenge is not None
            assert b"md5-sess" in challenge
            assert (challenge[4] == 0x0A) == (early_v2 not in frames)
            await peer.close()
        async with talking(bookie) as peer:  # but only one
            peer.writer.write(empty_auth() + empty_auth(2))
            assert await peer.reader.read() == v3_responses.encode_response(
                EXPECTED(2, v3.Operation.AUTH, Code.UNAUTHORIZED)
            )


async def test_start_tls_where_there_is_none_and_where_it_was(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=passwords(keys)) as bookie, talking(bookie) as peer:
        answer = await ask_v3(peer, START_TLS)
        assert isinstance(answer, EXPECTED) and answer.code == Code.BAD_REQUEST
    async with home.running(security=keys.bookie_settings(**_SASL, users_file=keys.users())) as bookie:
        peer = await encrypted(bookie, keys.context())
        assert await ask_v3(peer, START_TLS) is None
        await peer.close()


@pytest.mark.rule("N5")
async def test_n5_an_exchange_that_began_in_plain_bytes_does_not_go_on_encrypted(home: Home, keys: KeyFiles) -> None:
    """Whoever sits between has seen, or made, its beginning."""
    security = keys.bookie_settings(**_SASL, users_file=keys.users(), tls_required=False)
    async with home.running(security=security) as bookie, talking(bookie) as peer:
        challenge = await ask_v3(peer, empty_auth())
        assert challenge is not None and challenge.code == Code.OK
        assert await ask_v3(peer, START_TLS) is None


async def test_who_encrypts_and_need_not_say_who_it_is_may_be_silent(
    home: Home, keys: KeyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_handshake, "HANDSHAKE_S", 0.2)
    async with home.running(security=keys.bookie_settings()) as bookie:
        peer = await encrypted(bookie, keys.context())
        await asyncio.sleep(0.4)
        assert await one_add(peer) == Code.OK
        await peer.close()


async def test_plain_bytes_are_served_beside_encrypted_ones_where_that_is_written(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=keys.bookie_settings(tls_required=False)) as bookie, talking(bookie) as peer:
        assert await one_add(peer) == Code.OK
        hidden = await encrypted(bookie, keys.context())
        assert await one_add(hidden, 2) == Code.OK
        await hidden.close()


@pytest.mark.rule("N2")
async def test_n2_a_client_without_the_certificate_that_is_asked_for_does_not_come_in(
    home: Home, keys: KeyFiles, tmp_path: Path
) -> None:
    async with home.running(security=keys.bookie_settings(tls_ask_certificate=True)) as bookie:
        peer = await encrypted(bookie, keys.context(certified=True))
        assert await one_add(peer) == Code.OK
        await peer.close()
        stranger = KeyFiles.make(tmp_path / "other")
        context = keys.context()
        for certified in (False, True):
            if certified:
                context.load_cert_chain(stranger.client.certificate, stranger.client.key)
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                peer = await encrypted(bookie, context)
                peer.writer.write(adds(2, [0]))
                assert await peer.reader.read(1)  # with TLS 1.3 the client hears of it here
        assert bookie.counts.adds == 1


# Who a peer is


@pytest.mark.parametrize(("secret", "rows"), [(SECRET, {"came": 1}), (OLD_SECRET, {"came": 1, "old secret": 1})])
@pytest.mark.parametrize("plugin", ["sasl", "scram-sha-256"])
async def test_a_user_shows_either_secret_and_is_counted(
    home: Home, keys: KeyFiles, plugin: str, secret: str, rows: dict[str, int]
) -> None:
    kind = DigestClient if plugin == "sasl" else ScramClient
    async with home.running(security=passwords(keys)) as bookie, talking(bookie) as peer:
        assert await show(peer, plugin, kind(USER, secret, "nonce-of-mine")) == Code.OK
        answer = await ask_v3(peer, empty_auth(7))  # an original says a last thing once it is let in
        assert isinstance(answer, v3_responses.AuthResponse) and answer.plugin == DISABLED.encode()
        assert await one_add(peer) == Code.OK
        assert bookie.authentication() == [{"host": "127.0.0.1", "identity": f"user {USER}", **rows}]


@pytest.mark.rule("N2", "N3")
@pytest.mark.parametrize("plugin", ["sasl", "scram-sha-256"])
async def test_n2_who_shows_nothing_is_not_let_in_and_learns_nothing(home: Home, keys: KeyFiles, plugin: str) -> None:
    kind = DigestClient if plugin == "sasl" else ScramClient
    async with home.running(security=passwords(keys)) as bookie:
        answers = set[bytes | None]()
        for user, secret in ((USER, "no"), ("nobody bookkeeper", SECRET), ("root", SECRET)):
            async with talking(bookie) as peer:
                client = kind(user, secret, "nonce-of-mine")
                step = client.step(b"")
                first = await ask_v3(peer, request_v3(v3.AuthRequest, plugin.encode(), step.token))
                assert isinstance(first, v3_responses.AuthResponse)
                answers.add(
                    await peer.ask(request_v3(v3.AuthRequest, plugin.encode(), client.step(first.payload).token))
                )
                assert await peer.reader.read() == b""
        assert answers == {v3_responses.encode_response(EXPECTED(1, v3.Operation.AUTH, Code.UNAUTHORIZED))}
        assert bookie.counts.handshakes_failed == 3


async def test_version_2_is_closed_for_what_version_3_hears_no_of(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=passwords(keys)) as bookie:
        for payloads in ([(b"another", b"")], [(b"sasl", b""), (b"sasl", b"nothing")]):
            async with talking(bookie) as peer:
                for plugin, payload in payloads:
                    peer.writer.write(v2.AuthFrame(encode_message(plugin.decode(), payload)).encode())
                last = await peer.reader.read()
                assert (b"md5-sess" in last) == (len(payloads) == 2)
        async with talking(bookie) as peer:
            client, token = DigestClient(USER, SECRET, "cnonce"), b""
            while not (step := client.step(token)).done:
                assert not step.failure
                frame = await peer.ask(v2.AuthFrame(encode_message("sasl", step.token or b"")).encode())
                assert frame is not None
                name, token = decode_message(frame[8:])
                assert name == "sasl"
            assert await one_add(peer) == Code.OK


async def test_a_plugin_that_is_not_taken_is_refused_and_another_may_be_tried(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=passwords(keys, mechanisms=("scram-sha-256",))) as bookie, talking(bookie) as peer:
        answer = await ask_v3(peer, empty_auth())
        assert isinstance(answer, EXPECTED) and answer.code == Code.UNAUTHORIZED
        assert await show(peer, "scram-sha-256", ScramClient(USER, SECRET, "nonce-of-mine")) == Code.OK


async def test_ids_that_digest_md5_lets_in_are_the_original_s(home: Home, keys: KeyFiles) -> None:
    users = keys.users("others.toml", alice=(SECRET,), my_bookkeeper_1=(SECRET,))
    async with home.running(security=passwords(keys, users_file=users)) as bookie:
        for user, plugin, code in (
            ("alice", "sasl", Code.UNAUTHORIZED),
            ("my_bookkeeper_1", "sasl", Code.OK),
            ("alice", "scram-sha-256", Code.OK),
        ):
            async with talking(bookie) as peer:
                kind = DigestClient if plugin == "sasl" else ScramClient
                assert await show(peer, plugin, kind(user, SECRET, "nonce-of-mine")) == code


async def test_a_certificate_says_who_a_peer_is(home: Home, keys: KeyFiles) -> None:
    security = keys.bookie_settings(mechanisms=("certificate", "sasl"), users_file=keys.users())
    async with home.running(security=security) as bookie:
        peer = await encrypted(bookie, keys.context(certified=True))
        assert await one_add(peer) == Code.OK
        assert bookie.authentication() == [{"host": "127.0.0.1", "identity": "certificate client", "came": 1}]
        await peer.close()
        peer = await encrypted(bookie, keys.context())  # whoever has none shows a secret
        answer = await ask_v3(peer, adds_v3(1, [1]))
        assert isinstance(answer, EXPECTED)
        assert await show(peer, "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
        await peer.close()


@pytest.mark.rule("N2")
async def test_n2_a_certificate_alone_is_nobody_where_secrets_are_asked_for(home: Home, keys: KeyFiles) -> None:
    security = keys.bookie_settings(mechanisms=("sasl",), users_file=keys.users(), tls_ask_certificate=True)
    async with home.running(security=security) as bookie:
        peer = await encrypted(bookie, keys.context(certified=True))
        answer = await ask_v3(peer, adds_v3(1, [0]))
        assert isinstance(answer, EXPECTED) and answer.code == Code.UNAUTHORIZED
        assert await show(peer, "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
        await peer.close()


async def test_strangers_are_taken_and_counted_where_that_is_written(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=passwords(keys, allow_anonymous=True)) as bookie:
        async with talking(bookie) as peer:
            peer.writer.write(adds(1, range(3), bytes(100_000)))
            assert len(await peer.reader.readexactly(3 * 28)) == 84
        async with talking(bookie) as peer:
            assert await show(peer, "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
        rows = bookie.authentication()
        assert [(row["identity"], row["came"]) for row in rows] == [("anonymous", 1), (f"user {USER}", 1)]
        assert bookie.counts.anonymous == 1


# Bounds


@pytest.mark.rule("N3")
async def test_n3_nothing_longer_than_a_handshake_is_buffered(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=passwords(keys)) as bookie:
        for size in (64 * 1024 + 1, 5 * 1024 * 1024, 0, 5):
            async with talking(bookie) as peer, asyncio.timeout(SOON_S):
                peer.writer.write(size.to_bytes(4, "big") + bytes.fromhex("0a0608031005") + bytes(10))
                assert await peer.frame() is None


@pytest.mark.rule("N3", "N12")
async def test_n3_a_peer_that_does_not_say_who_it_is_goes_soon(
    home: Home, keys: KeyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_handshake, "HANDSHAKE_S", 0.2)
    async with home.running(security=keys.bookie_settings(**_SASL, users_file=keys.users())) as bookie:
        for begin in (b"", b"\x00\x00\x00", START_TLS, START_TLS + b"\x16\x03\x01\x02\x00"):
            async with talking(bookie) as peer:
                peer.writer.write(begin)
                async with asyncio.timeout(5):
                    assert len(await peer.reader.read()) < 40
        peer = await encrypted(bookie, keys.context())
        assert await show(peer, "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
        await asyncio.sleep(0.4)  # who is known stays
        assert await one_add(peer) == Code.OK
        await peer.close()


@pytest.mark.rule("N3", "N12")
async def test_n3_one_host_has_so_many_connections_that_have_not_shown_who_they_are(
    home: Home, keys: KeyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MOST_OF_A_HOST", 3)
    async with home.running(security=passwords(keys)) as bookie:
        waiting = [Peer(*await asyncio.open_connection(*bookie.address)) for _ in range(3)]
        await until(lambda: bookie.counts.connections == 3)
        async with talking(bookie) as one_more:
            assert await one_more.frame() is None
        async with talking(bookie, "127.0.0.2") as other:
            assert await show(other, "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
        assert await show(waiting[0], "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
        async with talking(bookie) as another:  # in the place of who is known now
            assert await show(another, "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
        for peer in waiting:
            await peer.close()
        await until(lambda: not bookie.counts.connections)
        newcomers = [Peer(*await asyncio.open_connection(*bookie.address)) for _ in range(3)]
        await until(lambda: bookie.counts.connections == 3)
        for peer in newcomers:  # in the places of those who have gone, known or not
            assert await show(peer, "sasl", DigestClient(USER, SECRET, "cnonce")) == Code.OK
            await peer.close()
        assert bookie.counts.handshakes_refused == 1


async def test_so_many_refusals_end_a_connection(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=passwords(keys)) as bookie, talking(bookie) as peer:
        peer.writer.write(b"".join(adds_v3(1, [number], number=number) for number in range(50)))
        answers = await peer.reader.read()
        assert answers.count(b"\x10\xf6\x03") == 16


async def test_tls_counts_in_the_memory_of_connections(home: Home, keys: KeyFiles) -> None:
    async with home.running(security=keys.bookie_settings()) as bookie:
        peer = await encrypted(bookie, keys.context())
        assert await one_add(peer) == Code.OK
        budget = bookie._server._budget
        assert budget.kept_bytes == CONNECTION_BYTES
        await peer.close()
        await until(lambda: budget.kept_bytes == 0)


@pytest.mark.rule("N3")
@given(
    st.tuples(st.booleans(), st.booleans()),
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([START_TLS, empty_auth(), adds_v3(1, [0]), adds(1, [0]), read(1, 0), b"\x16\x03\x01"]),
        ),
        max_size=6,
    ).map(b"".join),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3),
)
def test_n3_whatever_a_stranger_sends_it_stays_one(
    asks: tuple[bool, bool], data: bytes, changes: list[tuple[int, int]]
) -> None:
    changed = bytearray(data)
    for at, value in changes:
        if at < len(changed):
            changed[at] = value
    gate = OpenGate(tls=asks[0], must_encrypt=all(asks))
    result = serve_all(Handshake(gate, "host"), bytes(changed))
    assert gate.came == []
    assert result.next_wire is None
    assert result.need <= 64 * 1024 + 4
