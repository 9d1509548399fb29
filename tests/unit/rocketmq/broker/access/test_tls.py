"""TLS by the first byte at a real broker and name server, with a client of ours and with bare sockets."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.brokers import Bench, Peer, benched, send_command
from support.certificates import Authority, both, copy_files, secret_file
from support.secured import ACCESS, ROOT, Signing
from support.waiting import until
from tallystick.errors import TallyError, Unavailable, UsageError
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.ha import entry
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.remoting.tls import TlsMode, TlsSettings
from tallystick.runtime import certificates, tls_network
from tallystick.runtime.machine import this_machine
from tallystick.runtime.tls import CONNECTION_BYTES


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


def server_tls(authority: Authority, who: str = "broker", **changes: Any) -> TlsSettings:
    made = authority.certify(who)
    both_ways = {"dials": True, "dial_trust": authority.trust}
    return TlsSettings(**{"certificate": made.certificate, "key": made.key, **both_ways, **changes})


def context_of(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.trust)


async def secret_peer(bench: Bench, broker: Broker, context: ssl.SSLContext) -> Peer:
    peer = Peer(*await asyncio.open_connection(*broker.address, ssl=context))
    bench._stack.callback(peer.writer.close)
    return peer


async def is_closed(broker: Broker, data: bytes) -> bool:
    reader, writer = await asyncio.open_connection(*broker.address)
    writer.write(data)
    try:
        async with asyncio.timeout(10):
            return not await reader.read()
    except ConnectionResetError:
        return True
    finally:
        writer.close()


@pytest.mark.rule("N5")
async def test_n5_a_server_with_a_certificate_takes_tls_alone(tmp_path: Path, authority: Authority) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(tls=server_tls(authority)))
        peer = await secret_peer(bench, broker, context_of(authority))
        assert (await peer.ask(send_command(body=b"x" * 300_000))).code == 0
        assert await is_closed(broker, b"\0\0\1\0")  # a plain frame
        assert "it did not begin with TLS" in str(bench.told)
        files = server_tls(authority).files
        assert certificates.server_context(files, require_peer=False).minimum_version is ssl.TLSVersion.TLSv1_2
        assert broker.memory.kept_bytes >= CONNECTION_BYTES  # what TLS takes is the server's memory


async def test_permissive_is_written_and_takes_both(tmp_path: Path, authority: Authority) -> None:
    async with benched(tmp_path) as bench:
        settings = server_tls(authority, mode=TlsMode.PERMISSIVE)
        broker = await bench.broker(bench.settings(tls=settings))
        plain, secret = await bench.peer(broker), await secret_peer(bench, broker, context_of(authority))
        for peer in (plain, secret):
            assert (await peer.ask(send_command())).code == 0
    with pytest.raises(UsageError, match="no test certificates"):
        TlsSettings(mode=TlsMode.PERMISSIVE)


async def test_a_client_must_show_a_certificate_where_it_is_asked_for(tmp_path: Path, authority: Authority) -> None:
    async with benched(tmp_path) as bench:
        settings = server_tls(authority, trust=authority.trust, requires_client=True)
        broker = await bench.broker(bench.settings(tls=settings))
        shown, stranger = authority.certify("client"), Authority.make(tmp_path / "other", "other").certify("eve")
        context = context_of(authority)
        for certified, is_served in ((None, False), (stranger, False), (shown, True)):
            if certified is not None:
                context = context_of(authority)
                context.load_cert_chain(certified.certificate, certified.key)
            try:
                peer = await secret_peer(bench, broker, context)
                served = (await peer.ask(send_command())).code == 0
            except (OSError, AssertionError):
                served = False
            assert served is is_served


@pytest.mark.rule("N3")
async def test_n3_connections_that_do_not_begin_are_few_and_short(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_network, "HANDSHAKE_S", 0.3)
    monkeypatch.setattr(tls_network, "MAX_UNFINISHED", 4)
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(tls=server_tls(authority)))
        silent = [await asyncio.open_connection(*broker.address) for _ in range(5)]
        half = await asyncio.open_connection(*broker.address)
        half[1].write(b"\x16\x03\x01\x02\x00")  # a handshake of which no more comes
        async with asyncio.timeout(5):
            for reader, writer in (*silent, half):
                with suppress(ConnectionResetError):
                    assert not await reader.read()
                writer.close()
        told = [event.fields["reason"] for event in bench.told if event.kind == "connection refused"]
        assert sorted(set(told)) == ["it did not begin in time", "too many connections that have not begun"]
        assert broker._server.connections == 0
        peer = await secret_peer(bench, broker, context_of(authority))
        assert (await peer.ask(send_command())).code == 0


async def test_certificates_are_read_again_and_two_authorities_count_at_once(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates.TlsContexts.__init__, "__kwdefaults__", {"every_s": 0.0})
    other = Authority.make(tmp_path / "other", "other")
    files = tmp_path / "broker.pem", tmp_path / "broker.key"
    copy_files(authority.certify("first"), *files)
    async with benched(tmp_path) as bench:
        settings = TlsSettings(certificate=str(files[0]), key=str(files[1]))
        broker = await bench.broker(bench.settings(tls=settings))
        first = await secret_peer(bench, broker, context_of(authority))
        copy_files(other.certify("second"), *files)
        trusts_both = ssl.create_default_context(cafile=both(authority, other, tmp_path / "both.pem"))
        second = await secret_peer(bench, broker, trusts_both)
        with pytest.raises(ssl.SSLError):
            await secret_peer(bench, broker, context_of(authority))
        files[0].write_text("no certificate")  # what was read before counts
        third = await secret_peer(bench, broker, trusts_both)
        for peer in (first, second, third):
            assert (await peer.ask(send_command())).code == 0
        assert any(event.kind == "certificates refused" for event in bench.told)


@pytest.mark.rule("N2")
async def test_n2_files_of_tls_that_cannot_be_used_are_no_start(tmp_path: Path, authority: Authority) -> None:
    made = authority.certify("broken")
    async with benched(tmp_path) as bench:
        for certificate, key in ((made.certificate, "/nowhere"), (authority.trust, made.key)):
            settings = TlsSettings(certificate=certificate, key=key)
            with pytest.raises(UsageError):
                await bench.broker(bench.settings(tls=settings))


async def _house(stack: AsyncExitStack, bench: Bench, tls: TlsSettings, name_tls: TlsSettings) -> str:
    """A name server and a broker, both with TLS and the broker with keys. Returns the name server's address."""
    names = NameServer(NameServerSettings(port=0, tls=name_tls), this_machine())
    address = ":".join(map(str, await names.start()))
    stack.push_async_callback(names.close)
    await bench.broker(bench.settings(tls=tls, access=ACCESS, name_servers=(address,)))
    return address


@pytest.mark.rule("N5")
async def test_n5_our_client_signs_over_tls_and_never_without_it(tmp_path: Path, authority: Authority) -> None:
    async with benched(tmp_path) as bench, AsyncExitStack() as stack:
        servers = await _house(stack, bench, server_tls(authority), server_tls(authority, "names"))
        keys = secret_file(tmp_path / "keys", f"accessKey={ROOT.access_key}\nsecretKey={ROOT.secret_key}\n")
        security = BrokerSecurity(credentials_file=keys, tls_ca_file=authority.trust)

        async def sends(security: BrokerSecurity) -> bool:
            settings = BrokerClientSettings(security=security, topic_wait_s=3.0, send_retries=0)
            async with topics(servers, settings=settings) as mq:
                return bool(await mq.producer("P").send("T", b"hello"))

        await until(lambda: asyncio.sleep(0, bool(bench.brokers)), seconds=5)
        assert await sends(security)
        with pytest.raises(TallyError, match="signature"):
            await sends(replace(security, credentials_file=None, access_key="root", secret_key="wrong"))
        other = Authority.make(tmp_path / "other", "other")
        for wrong in (replace(security, tls_ca_file=other.trust), replace(security, tls_ca_file=None)):
            with pytest.raises(Unavailable):
                await sends(wrong)
        assert ROOT.secret_key not in repr(security) + repr(BrokerSecurity(access_key="a", secret_key=ROOT.secret_key))


@pytest.mark.rule("N5")
async def test_n5_a_certificate_for_another_host_is_refused_and_a_plain_server_too(
    tmp_path: Path, authority: Authority
) -> None:
    made = authority.certify("elsewhere", hosts="DNS:elsewhere.example")
    async with benched(tmp_path) as bench, AsyncExitStack() as stack:
        wrong = TlsSettings(certificate=made.certificate, key=made.key)
        for tls in (wrong, TlsSettings()):
            names = NameServer(NameServerSettings(port=0, tls=tls), this_machine())
            stack.push_async_callback(names.close)
            address = ":".join(map(str, await names.start()))
            settings = BrokerClientSettings(security=BrokerSecurity(tls_ca_file=authority.trust), topic_wait_s=1.0)
            async with topics(address, settings=settings) as mq:
                with pytest.raises(Unavailable):
                    await mq.topic("T")
        assert not bench.told


async def test_a_file_of_keys_is_private_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    secret_file(path, "accessKey: a\nsecretKey: one-secret\n", mode=0o644)
    clock = this_machine().clock
    with pytest.raises(UsageError, match="everybody"):
        BrokerSecurity(credentials_file=str(path)).credentials(clock)
    path.chmod(0o600)
    current = BrokerSecurity(credentials_file=str(path)).credentials(clock)
    first = current()
    assert first is not None and (first.access_key, first.secret_key) == ("a", "one-secret")
    path.write_text("accessKey: a\nsecretKey")  # half written
    path.write_text("accessKey: a\nsecretKey: two-secret\n")

    def is_new() -> bool:
        newest = current()
        return newest is not None and newest.secret_key == "two-secret"

    await until(lambda: asyncio.sleep(0, is_new()), seconds=5)
    path.write_text("secret-without-name\n")
    with pytest.raises(UsageError) as refused:
        BrokerSecurity(credentials_file=str(path)).credentials(clock)
    assert "secret-without-name" not in str(refused.value)


def mutual(authority: Authority, who: str) -> TlsSettings:
    made = authority.certify(who)
    return server_tls(authority, who, trust=authority.trust, dial_certificate=made.certificate, dial_key=made.key)


@pytest.mark.rule("N4")
async def test_n4_a_slave_shows_its_certificate_or_is_named_by_its_address(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "is_loopback", lambda host: False)
    async with benched(tmp_path) as bench:
        ha = HaSettings(allowed_names=("slave",))
        master = await bench.broker(bench.settings(access=ACCESS, ha=ha, tls=mutual(authority, "master")))
        peer = Signing(await secret_peer(bench, master, context_of(authority)))
        assert (await peer.ask(send_command(body=b"copied"))).code == 0
        plain = replace(server_tls(authority, "plain"), dials=False)
        for number, (tls, why) in enumerate(
            (
                (mutual(authority, "slave"), None),
                (mutual(authority, "producer"), "haAllowedNames"),
                (server_tls(authority, "nobody"), "no certificate"),
                (plain, ""),
            )
        ):
            settings = bench.settings(
                f"slave{number}", broker_id=1, role=Role.SLAVE, access=ACCESS, tls=tls, cluster="c0"
            )
            slave = await bench.broker(settings)
            slave.log.follow(":".join(map(str, master.ha_address or ())))
            if why is None:
                await until(lambda: slave.parts.store.end == master.parts.store.end > 0, seconds=20)  # noqa: B023
            else:
                reason = why or "it did not begin with TLS"
                await until(lambda: reason in str(bench.told), seconds=20)  # noqa: B023
                assert slave.parts.store.end == 0
            await slave.stop()


async def test_a_slave_without_tls_is_let_in_by_its_address_aloud(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "is_loopback", lambda host: False)
    async with benched(tmp_path) as bench:
        ha = HaSettings(allowed_addresses=entry.read_addresses("haAllowedAddresses", "127.0.0.0/8"))
        master = await bench.broker(bench.settings(access=ACCESS, ha=ha, tls=mutual(authority, "master")))
        assert [event.fields["addresses"] for event in bench.told if event.kind == "slaves let in by address"]
        peer = Signing(await secret_peer(bench, master, context_of(authority)))
        assert (await peer.ask(send_command(body=b"copied"))).code == 0
        settings = bench.settings(
            "slave", broker_id=1, role=Role.SLAVE, access=ACCESS, tls=mutual(authority, "slave"), cluster="c0",
            ha=HaSettings(plaintext=True),
        )  # fmt: skip
        slave = await bench.broker(settings)
        slave.log.follow(":".join(map(str, master.ha_address or ())))
        await until(lambda: slave.parts.store.end == master.parts.store.end > 0, seconds=20)
        assert await is_closed(master, b"\0\0\1\0")  # that port is for slaves alone


async def test_a_master_that_lets_any_certificate_follow_says_so(tmp_path: Path, authority: Authority) -> None:
    async with benched(tmp_path) as bench:
        for ha, times in ((HaSettings(allowed_names=("slave",)), 0), (HaSettings(), 1)):
            await bench.broker(bench.settings(f"b{times}", ha=ha, tls=mutual(authority, "master")))
            told = [event.fields for event in bench.told if event.kind == "slaves let in by any certificate"]
            assert len(told) == times and all("authorities" in fields for fields in told)


async def test_pages_of_metrics_are_served_by_tls(tmp_path: Path, authority: Authority) -> None:
    async with benched(tmp_path) as bench:
        settings = bench.settings(tls=server_tls(authority), http_enabled=True, http_port=0)
        broker = await bench.broker(settings)
        assert broker.http_address is not None
        for context, is_served in ((context_of(authority), True), (None, False)):
            reader, writer = await asyncio.open_connection(*broker.http_address, ssl=context)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            page = b""
            with suppress(ConnectionResetError):
                async with asyncio.timeout(10):
                    page = await reader.read()
            writer.close()
            assert (b"broker_connections" in page) is is_served
