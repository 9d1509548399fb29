"""Files of keys that change while a bookie runs: for who comes next, and for who is there."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from support.bookies import Home, Peer, talking
from support.certificates import both, copy_files, secret_file
from support.keyed import USER, KeyFiles, encrypted, one_add, passwords, show
from support.waiting import until
from tallystick.bookkeeper.wire import scram
from tallystick.bookkeeper.wire.auth import Step
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest_md5 import DigestClient
from tallystick.bookkeeper.wire.scram import ScramClient


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFiles:
    return KeyFiles.make(tmp_path_factory.mktemp("keys"))


@pytest.mark.rule("N2")
async def test_n2_changed_files_count_for_who_comes_next_and_damaged_ones_do_not(home: Home, keys: KeyFiles) -> None:
    users = keys.users("changing.toml", bookkeeper=("one",))
    security = passwords(keys, users_file=users, tls_look_s=0.001)
    async with home.running(security=security) as bookie:

        async def comes(secret: str) -> bool:
            async with talking(bookie) as peer:
                return await show(peer, "sasl", DigestClient(USER, secret, "cnonce")) == Code.OK

        async def comes_no_more(secret: str) -> bool:
            return not await comes(secret)

        assert await comes("one")
        keys.users("changing.toml", bookkeeper=("two", "one"))
        await until(lambda: comes("two"))
        assert await comes("one")
        keys.users("changing.toml", bookkeeper=("two",))
        await until(lambda: comes_no_more("one"))
        secret_file(users, "[users]\nbookkeeper = 'one'\nthis is no TOML")
        await until(lambda: len(home.heard("security file not read")) == 1)
        assert await comes("two") and not await comes("one")
        secret_file(users, "[users]\nbookkeeper = 'one'\n", mode=0o644)
        await until(lambda: len(home.heard("security file not read")) == 2)
        assert not await comes("one")


@pytest.mark.rule("N2")
@pytest.mark.parametrize("plugin", ["sasl", "scram-sha-256"])
async def test_n2_whose_key_is_taken_away_is_thrown_out_and_nobody_else(
    home: Home, keys: KeyFiles, tmp_path: Path, plugin: str
) -> None:
    kind = DigestClient if plugin == "sasl" else ScramClient
    users = keys.users("leaving.toml", bookkeeper=("one", "two"), bookkeeper2=("three",))
    permissions = secret_file(tmp_path / "permissions", "")
    security = passwords(keys, users_file=users, permissions_file=permissions, tls_look_s=0.01)
    async with home.running(security=security) as bookie:
        peers = []
        for user, secret in ((USER, "one"), (USER, "two"), ("bookkeeper2", "three")):
            peers.append(Peer(*await asyncio.open_connection(*bookie.address)))
            assert await show(peers[-1], plugin, kind(user, secret, "nonce-of-mine")) == Code.OK
            assert await one_add(peers[-1]) == Code.OK
        keys.users("leaving.toml", bookkeeper=("one",), bookkeeper2=("three",))
        async with asyncio.timeout(5):
            assert await peers[1].reader.read() == b""
        for peer in (peers[0], peers[2]):
            assert await one_add(peer) == Code.OK
        secret_file(permissions, "[users]\nbookkeeper2 = ['read']\n")
        async with asyncio.timeout(5):
            assert await peers[2].reader.read() == b""
        assert await one_add(peers[0]) == Code.OK
        assert len(home.heard("connection closed")) == 2
        for peer in peers:
            await peer.close()


async def test_a_changed_certificate_counts_for_new_connections(home: Home, keys: KeyFiles, tmp_path: Path) -> None:
    other = KeyFiles.make(tmp_path / "other")
    certificate, key = tmp_path / "now.pem", tmp_path / "now.key"

    copy_files(keys.bookie, certificate, key)
    trust = both(keys.authority, other.authority, tmp_path / "both.pem")  # of clients meanwhile
    security = keys.bookie_settings(tls_certificate=str(certificate), tls_key=str(key))
    async with home.running(security=security) as bookie:
        old = await encrypted(bookie, keys.context())
        copy_files(other.bookie, certificate, key)
        await asyncio.sleep(0.005)
        with pytest.raises(ssl.SSLError):
            await encrypted(bookie, keys.context())
        for context in (other.context(), ssl.create_default_context(cafile=trust)):
            peer = await encrypted(bookie, context)
            assert await one_add(peer) == Code.OK
            await peer.close()
        assert await one_add(old, 3) == Code.OK
        await old.close()


class _Guessing:
    """A client of SCRAM that has a user's name and no secret."""

    def __init__(self, user: str) -> None:
        self._user = user

    def step(self, token: bytes) -> Step:
        if not token:
            return Step(f"n,,n={self._user},r=client-nonce".encode())
        nonce = token.partition(b",")[0]
        return Step(b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=")


@pytest.mark.rule("N3")
async def test_n3_the_time_of_a_refusal_does_not_say_who_is_a_user(home: Home, keys: KeyFiles) -> None:
    """The keys of a secret take some milliseconds: they are made before anybody comes, of nobody's once."""
    users = keys.users("guessed.toml", bookkeeper=("a secret that nobody guesses", "an old one"))
    scram._keys.cache_clear()
    async with home.running(security=passwords(keys, users_file=users)) as bookie:
        made = scram._keys.cache_info().misses
        for user in ("bookkeeper", "a-bookkeeper", "another-bookkeeper"):
            async with talking(bookie) as peer:
                assert await show(peer, "scram-sha-256", _Guessing(user)) == Code.UNAUTHORIZED
            assert scram._keys.cache_info().misses == made, user
