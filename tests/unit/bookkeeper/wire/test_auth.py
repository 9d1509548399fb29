"""The exchanges of AUTH: against the vectors of their RFCs, and against what a stranger may send."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import scram
from tallystick.bookkeeper.wire.auth import Exchange, decode_message, encode_message
from tallystick.bookkeeper.wire.digest_md5 import DigestClient, DigestServer, Place
from tallystick.bookkeeper.wire.scram import MAX_ROUNDS, ScramClient, ScramServer
from tallystick.errors import RemoteProtocolError

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def secrets_of(users: dict[str, tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    return lambda user: users.get(user, ())


def digest_pair(users: dict[str, tuple[str, ...]], user: str, secret: str) -> tuple[Exchange, Exchange]:
    return DigestServer(secrets_of(users), "nonce"), DigestClient(user, secret, "cnonce")


def scram_pair(users: dict[str, tuple[str, ...]], user: str, secret: str) -> tuple[Exchange, Exchange]:
    server = ScramServer(secrets_of(users), "their-own-nonce", lambda _: b"salt" * 4)
    return server, ScramClient(user, secret, "my-own-nonce")


PAIRS = pytest.mark.parametrize("pair", [digest_pair, scram_pair], ids=["digest-md5", "scram"])
Pair = Callable[[dict[str, tuple[str, ...]], str, str], tuple[Exchange, Exchange]]


def talk(server: Exchange, client: Exchange) -> tuple[str, int] | None:
    """The user and the place of its secret, if both sides are content."""
    token, came = b"", None
    for _ in range(8):
        step = client.step(token)
        if step.failure:
            return None
        if step.done:
            return came
        answer = server.step(step.token or b"")
        if answer.failure:
            return None
        came = (answer.user, answer.place) if answer.done else came
        token = answer.token or b""
    raise AssertionError("it has no end")


@PAIRS
@given(user=NAMES, secrets=st.lists(NAMES, min_size=1, max_size=2, unique=True))
def test_each_secret_of_a_user_is_taken(pair: Pair, user: str, secrets: list[str]) -> None:
    for place, secret in enumerate(secrets):
        assert talk(*pair({user: tuple(secrets)}, user, secret)) == (user, place)


@PAIRS
@given(user=NAMES, secret=NAMES, other=NAMES)
def test_another_secret_or_user_is_not_taken(pair: Pair, user: str, secret: str, other: str) -> None:
    assert talk(*pair({user: (secret,)}, user, secret + other)) is None
    assert talk(*pair({user: (secret,)}, user + other, secret)) is None
    assert talk(*pair({}, user, "")) is None


@PAIRS
@given(first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_any_tokens_end_an_exchange_and_nothing_else(pair: Pair, first: bytes, second: bytes) -> None:
    for side in pair({"u": ("s",)}, "u", "s"):
        for token in (first, second, first):
            step = side.step(token)
            assert not step.done
            if step.failure:
                break


def test_scram_speaks_the_example_of_rfc_7677() -> None:
    client = ScramClient("user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.step(b"").token == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.step(first).token == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").done


@pytest.mark.parametrize(
    "first",
    [
        b"r=another-nonce-than-mine,s=c2FsdHNhbHQ=,i=4096",
        b"r=my-own-nonce,s=c2FsdHNhbHQ=,i=4096",  # the bookie added nothing
        b"r=my-own-nonce-and-more,s=c2FsdHNhbHQ=,i=1",
        b"r=my-own-nonce-and-more,s=c2FsdHNhbHQ=,i=%d" % (MAX_ROUNDS + 1),
        b"e=other-error",
    ],
)
def test_a_client_of_scram_does_no_more_than_it_must(first: bytes) -> None:
    client = ScramClient("u", "s", "my-own-nonce")
    client.step(b"")
    assert client.step(first).failure


@pytest.mark.rule("N5")
@pytest.mark.parametrize("last", [b"v=" + b"A" * 43 + b"=", b"e=invalid-proof", b"", b"v="])
def test_n5_a_client_of_scram_believes_no_bookie_that_does_not_know_the_secret(last: bytes) -> None:
    server, client = scram_pair({"u": ("s",)}, "u", "s")
    first = server.step(client.step(b"").token or b"").token or b""
    right = server.step(client.step(first).token or b"").token or b""
    assert right.startswith(b"v=")
    assert client.step(last).failure
    assert client.step(right).done


@pytest.mark.rule("N5")
@pytest.mark.parametrize("last", [b"rspauth=00", b"", b'nonce="nonce",algorithm=md5-sess', b"rspauth="])
def test_n5_a_client_of_digest_md5_believes_no_bookie_that_does_not_know_the_secret(last: bytes) -> None:
    server, client = digest_pair({"u": ("s",)}, "u", "s")
    challenge = server.step(client.step(b"").token or b"").token or b""
    right = server.step(client.step(challenge).token or b"").token or b""
    assert right.startswith(b"rspauth=")
    assert client.step(last).failure
    assert client.step(right).done


@pytest.mark.rule("N13")
def test_n13_a_proof_of_scram_for_another_nonce_is_not_taken() -> None:
    server, client = scram_pair({"u": ("s",)}, "u", "s")
    begin = client.step(b"").token or b""
    first = (server.step(begin).token or b"").decode()
    final = "c=biws,r=my-own-nonce-and-another"
    signed = f"{begin.decode().removeprefix('n,,')},{first},{final}".encode()
    key, _ = scram._keys("s", b"salt" * 4, scram.ROUNDS)
    proof = b64encode(scram._proof(key, signed)).decode()
    assert server.step(f"{final},p={proof}".encode()).failure


def test_scram_s_nonce_and_binding_are_checked() -> None:
    for change in ((b"r=my-own", b"r=my-owm"), (b"c=biws", b"c=eSws"), (b"their", b"thair")):
        server, client = scram_pair({"u": ("s",)}, "u", "s")
        first = server.step(client.step(b"").token or b"")
        final = client.step(first.token or b"").token or b""
        assert change[0] in final
        assert server.step(final.replace(*change)).failure


def test_digest_md5_speaks_the_example_of_rfc_2831() -> None:
    client = DigestClient("chris", "secret", "OA6MHXh6VqTrRk", Place("imap", "elwood.innosoft.com"))
    assert client.step(b"").token == b""
    challenge = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    answer = client.step(challenge).token
    assert answer is not None
    assert b"response=d388dad90d4bbd760a152321f2143af7" in answer
    assert client.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffd").done


@pytest.mark.parametrize(
    "change",
    [
        (b"nc=00000001", b"nc=00000002"),
        (b'nonce="nonce"', b'nonce="ponce"'),
        (b"qop=auth", b"qop=auth-conf"),
        (b'realm="bookkeeper"', b'realm="elsewhere"'),
        (b'"bookkeeper/bookkeeper"', b'"zookeeper/bookkeeper"'),
        (b"qop=auth", b'qop=auth,authzid="another"'),
        (b"qop=auth", b"qop=auth,qop=auth"),
        (b"qop=auth", b"qop=auth,x=" + b"y" * 5000),
        (b"qop=auth", b'qop=auth,x="'),
        (b"response=", b"response=\xff"),
    ],
)
def test_digest_md5_is_for_one_bookie_one_nonce_and_one_user(change: tuple[bytes, bytes]) -> None:
    server, client = digest_pair({"u": ("s",)}, "u", "s")
    server.step(b"")
    client.step(b"")
    answer = client.step(b'realm="bookkeeper",nonce="nonce",qop="auth",algorithm=md5-sess').token or b""
    assert change[0] in answer
    assert server.step(answer.replace(*change, 1)).failure
    fresh, _ = digest_pair({"u": ("s",)}, "u", "s")
    assert fresh.step(answer).failure  # a token of another exchange, sent again


def test_names_with_quotes_and_commas_come_through() -> None:
    for pair in (digest_pair, scram_pair):
        user = 'a"b\\c,d=e é 猫'
        assert talk(*pair({user: ("s",)}, user, "s")) == (user, 0)


@given(plugin=st.text(max_size=20), payload=st.binary(max_size=50))
def test_auth_messages_round_trip(plugin: str, payload: bytes) -> None:
    assert decode_message(encode_message(plugin, payload)) == (plugin, payload)


@given(st.binary(max_size=50))
def test_what_is_no_auth_message_is_refused(data: bytes) -> None:
    try:
        plugin, payload = decode_message(data)
    except RemoteProtocolError:
        return
    assert decode_message(encode_message(plugin, payload)) == (plugin, payload)


def test_scram_takes_no_proof_that_is_not_base64() -> None:
    server, client = scram_pair({"u": ("s",)}, "u", "s")
    first = server.step(client.step(b"").token or b"").token or b""
    final = client.step(first).token or b""
    head, _, proof = final.partition(b",p=")
    assert len(b64decode(proof)) == 32
    for other in (b"=" * 44, b"A" * 44, proof[:-1] + b"*"):
        server, client = scram_pair({"u": ("s",)}, "u", "s")
        server.step(client.step(b"").token or b"")
        assert server.step(head + b",p=" + other).failure
