"""Keys and TLS are switched on, and keys changed, at brokers that take messages meanwhile: no send fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from support.brokers import Bench, Peer, benched, send_command
from support.certificates import Authority, secret_file
from support.ports import free_port
from support.secured import ACCESS, ROOT, Signing
from support.waiting import until
from tallystick.admin.auth import broker_authentication
from tallystick.admin.brokers import operator
from tallystick.admin.topics import create_topic
from tallystick.cli import NOT_WELL
from tallystick.cli import auth as command
from tallystick.cli.options import NameServersOption
from tallystick.errors import TallyError
from tallystick.rocketmq.broker.access import file
from tallystick.rocketmq.broker.access.settings import AccessSettings
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting import security
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.remoting.tls import TlsMode, TlsSettings
from tallystick.rocketmq.wire.signature import Credentials
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time
NAMES = ("b0", "b1")
BOTH = replace(ACCESS, anonymous=True)
KEYS = BrokerSecurity(access_key=ROOT.access_key, secret_key=ROOT.secret_key)


@dataclass
class Cluster:
    """Two masters and two name servers, restarted one by one with other settings."""

    bench: Bench
    running: dict[str, Broker] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port(-2, 1) for name in NAMES})
    names: dict[int, NameServer] = field(default_factory=dict)  # two, by port
    clients: list[RocketMQ] = field(default_factory=list)  # those that send now

    @property
    def servers(self) -> str:
        return ";".join(f"127.0.0.1:{port}" for port in self.names)

    async def roll_names(self, tls: TlsSettings) -> None:
        """Brokers register again within a second."""
        for port in tuple(self.names) or (0, 0):
            if port:
                await self.names[port].close()
            names = NameServer(NameServerSettings(port=port, tls=tls), this_machine())
            self.names[(await names.start())[1]] = names
            await until(lambda: self._are_registered(*self.running), seconds=20)

    async def close_names(self) -> None:
        for names in self.names.values():
            await names.close()

    async def roll(self, access: AccessSettings, tls: TlsSettings) -> None:
        for name in NAMES:
            if name in self.running:
                await self.running.pop(name).stop()
            changes = {
                "access": access,
                "tls": tls,
                "name_servers": tuple(self.servers.split(";")),
                "port": self.ports[name],
            }
            settings = replace(self.bench.settings(name, **changes), name=name)
            self.running[name] = await self.bench.broker(settings)
            await until(lambda: self._are_registered(name), seconds=20)  # noqa: B023
            await until(self._are_both_told, seconds=20, pause=0.05)  # before the other one goes

    def _are_registered(self, *brokers: str) -> bool:
        return all(names.routes.sets.get(broker) for names in self.names.values() for broker in brokers)

    async def _are_both_told(self) -> bool:
        routes = [await client.topic("T") for client in self.clients]
        return all(set(route.addresses) == set(NAMES) for route in routes)


@asynccontextmanager
async def sending(cluster: Cluster, keys: BrokerSecurity) -> AsyncIterator[None]:
    """A client sends all the time; at the end each of its messages is there."""
    settings = BrokerClientSettings(security=keys, topic_wait_s=20.0, send_retries=4, down_s=0.1, send_timeout_s=20.0)
    async with topics(cluster.servers, settings=settings) as mq:
        cluster.clients.append(mq)
        producer, goes_on, sent = mq.producer("P"), True, set[bytes]()

        async def send() -> None:
            while goes_on:
                body = f"{id(producer)}-{len(sent)}".encode()
                await producer.send("T", body)  # which raises if it fails
                sent.add(body)
                await asyncio.sleep(0.005)

        task = asyncio.create_task(send())
        try:
            yield
            goes_on = False
            await task
            assert len(sent) > 20
            async with asyncio.timeout(30):
                async for message in mq.consumer(f"G{id(producer)}", "T", start="first"):
                    sent.discard(message.body)
                    if not sent:
                        break
        finally:
            cluster.clients.remove(mq)
            task.cancel()
            with suppress(asyncio.CancelledError, TallyError):
                await task


async def identities(servers: str, monkeypatch: pytest.MonkeyPatch, keys: str, trust: str = "") -> set[str]:
    """Who came to the brokers, as an operator sees it, with the counts that are not zero."""
    monkeypatch.setenv(security.CREDENTIALS, keys)
    monkeypatch.setenv(security.CA, trust)
    async with operator(servers) as asking:
        brokers = await broker_authentication(asking)
    monkeypatch.delenv(security.CREDENTIALS)
    monkeypatch.delenv(security.CA)
    assert [broker.problem for broker in brokers] == [None] * len(NAMES)
    peers = [peer for broker in brokers if broker.info for peer in broker.info.peers]
    return {f"{peer.identity}{' (old)' if peer.old_secret else ''}" for peer in peers}


@pytest.mark.rule("N5", "N1")
@pytest.mark.timeout(240)
async def test_n5_keys_and_tls_are_switched_on_at_brokers_that_take_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.make(tmp_path / "authority")
    made = authority.certify("server")
    keys = secret_file(tmp_path / "keys", f"accessKey={ROOT.access_key}\nsecretKey={ROOT.secret_key}\n")
    plain = TlsSettings()
    both_ways = TlsSettings(certificate=made.certificate, key=made.key, mode=TlsMode.PERMISSIVE)
    dials = replace(both_ways, dials=True, dial_trust=authority.trust)
    enforcing = replace(dials, mode=None)
    encrypted = replace(KEYS, tls_ca_file=authority.trust)
    async with benched(tmp_path) as bench, AsyncExitStack() as stack:
        cluster = Cluster(bench)
        await cluster.roll_names(plain)
        stack.push_async_callback(cluster.close_names)
        await cluster.roll(AccessSettings(), plain)
        async with operator(cluster.servers) as asking:
            await create_topic(asking, "T")  # at both: a topic that a send makes is where that one came
        async with sending(cluster, BrokerSecurity()), sending(cluster, KEYS):
            await cluster.roll_names(both_ways)  # clients send keys, and nobody asks for them
            await cluster.roll(BOTH, dials)  # brokers take both, with TLS and without

            async def both_came() -> bool:
                return await identities(cluster.servers, monkeypatch, keys) == {"anonymous", "user root"}

            await until(both_came, seconds=20, pause=0.1)
        async with sending(cluster, encrypted):
            await cluster.roll(ACCESS, enforcing)  # keys and TLS are required
            await cluster.roll_names(enforcing)
            assert await identities(cluster.servers, monkeypatch, keys, authority.trust) == {"user root"}
        for wrong in (KEYS, BrokerSecurity(tls_ca_file=authority.trust)):
            settings = BrokerClientSettings(security=wrong, topic_wait_s=1.0, send_retries=0)
            async with topics(cluster.servers, settings=settings) as mq:
                with pytest.raises(TallyError):
                    await mq.producer("P").send("T", b"never")


@pytest.mark.rule("N5")
@pytest.mark.timeout(120)
async def test_n5_the_secret_of_a_user_is_changed_while_he_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LOOK_S", 0.05)
    root = secret_file(tmp_path / "root", f"accessKey={ROOT.access_key}\nsecretKey={ROOT.secret_key}\n")
    async with benched(tmp_path) as bench, AsyncExitStack() as stack:
        cluster = Cluster(bench)
        await cluster.roll_names(TlsSettings())
        stack.push_async_callback(cluster.close_names)
        await cluster.roll(ACCESS, TlsSettings())
        for broker in cluster.running.values():
            await Signing(await bench.peer(broker)).make_user("ann", "one-secret", user_type="Super")

        async def passwords(old: str, new: str) -> None:
            for name, broker in cluster.running.items():
                path, table = tmp_path / name / "config" / "tallyAccess.json", broker._access.file.table
                await until(lambda: old in path.read_text(), seconds=10)  # noqa: B023
                secret_file(path, path.read_text().replace(old, new))
                await until(lambda: list(table.users["ann"].secrets) == json.loads(new), seconds=10)  # noqa: B023

        one = secret_file(tmp_path / "one", "accessKey=ann\nsecretKey=one-secret\n")
        async with sending(cluster, BrokerSecurity(credentials_file=one)):
            await passwords('["one-secret"]', '["two-secret","one-secret"]')
            before = {broker: broker._access.collector._counts.old_secrets for broker in cluster.running.values()}

            async def are_old() -> bool:
                return all(broker._access.collector._counts.old_secrets > n for broker, n in before.items())

            await until(are_old, seconds=20)
            assert "user ann (old)" in await identities(cluster.servers, monkeypatch, root)
            secret_file(one, "accessKey=ann\nsecretKey=two-secret\n")

            async def are_new() -> bool:
                counts = [broker._access.collector._counts for broker in cluster.running.values()]
                before = [each.old_secrets for each in counts]
                await asyncio.sleep(0.3)
                return before == [each.old_secrets for each in counts]

            await until(are_new, seconds=20)
            await passwords('["two-secret","one-secret"]', '["two-secret"]')
            await asyncio.sleep(0.3)
        for broker in cluster.running.values():
            signed = Signing(await bench.peer(broker), Credentials("ann", "one-secret"))
            assert (await signed.ask(send_command())).code != 0


async def test_the_command_shows_who_comes_to_brokers_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = secret_file(tmp_path / "keys", f"accessKey={ROOT.access_key}\nsecretKey={ROOT.secret_key}\n")
    monkeypatch.setenv(security.CREDENTIALS, keys)
    async with benched(tmp_path) as bench, AsyncExitStack() as stack:
        cluster = Cluster(bench)
        await cluster.roll_names(TlsSettings())
        stack.push_async_callback(cluster.close_names)

        async def status() -> tuple[int, str]:
            code = await asyncio.to_thread(command.status, brokers=True, servers=NameServersOption(cluster.servers))
            return code, capsys.readouterr().out

        await cluster.roll(AccessSettings(), TlsSettings())
        code, shown = await status()
        assert code == NOT_WELL and "anybody" in shown and "it asks nobody who he is" in shown
        await cluster.roll(BOTH, TlsSettings())
        assert (await status())[0] == 0  # nobody came without a key yet
        peer: Peer = await bench.peer(cluster.running["b1"])
        assert (await peer.ask(send_command())).code == 0
        code, shown = await status()
        assert code == NOT_WELL and "no key" in shown and "both" in shown and "user root" in shown
        await cluster.roll(ACCESS, TlsSettings())
        ann = await Signing(await bench.peer(cluster.running["b0"])).make_user("ann", "ann-secret")
        assert (await Signing(await bench.peer(cluster.running["b0"]), ann).ask(send_command())).code != 0
        code, shown = await status()
        assert code == NOT_WELL and "user ann" in shown and "refused" in shown and "signatures" in shown
        assert "secret-9271" not in shown and "ann-secret" not in shown
