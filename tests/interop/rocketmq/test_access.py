"""Keys: the original's tools and clients, of 5.5.0 and 4.9.7, on our broker; our client on an original broker."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.broker_peers import Broker, NameServer
from support.certificates import Authority
from support.houses import House
from support.java import SMALL, Java
from support.signing_clients import keyed_admin, keyed_run, old_clients
from support.waiting import until
from tallystick.errors import TallyError
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.remoting.security import BrokerSecurity

ROOT = ("root", "root-secret")
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}

# Without these an original with keys does not start.
PROVIDERS = {
    f"{kind}MetadataProvider": f"org.apache.rocketmq.auth.{kind}.provider.Local{kind.title()}MetadataProvider"
    for kind in ("authentication", "authorization")
}


@pytest.fixture
async def house(new_house: Callable[[str], Coroutine[Any, Any, House]]) -> AsyncIterator[House]:
    house = await new_house("tally")
    yield house
    await house.forget()


def _as_java_reads_it(key: str) -> str:
    path = f"{key}.pk8"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", key, "-out", path], check=True, capture_output=True
    )
    return path


async def _listening(port: int) -> None:
    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    await until(answers, seconds=60)


async def test_admin_commands_make_copy_and_delete_users_and_policies(
    rocketmq: Java, folder: Path, house: House
) -> None:
    brokers = [Broker("tally", folder, None, house.ns, {**KEYS, "brokerName": name}) for name in ("b0", "b1")]
    try:
        await house.start(*brokers)
        first, second = (broker.address for broker in brokers)
        printed = await keyed_admin(
            rocketmq,
            ROOT,
            f"createUser -b {first} -u ann -p ann-secret",
            f"createUser -b {first} -u ann -p again",
            f"updateUser -b {first} -u ann -p changed",
            f"createAcl -b {first} -s User:ann -r Topic:T,Group:G* -a Pub,Sub -d Allow",
            f"updateAcl -b {first} -s User:ann -r Topic:T -a Pub -d Deny -i 10.0.0.0/8",
            f"getUser -b {first} -u ann",
            f"listUser -b {first}",
            f"getAcl -b {first} -s User:ann",
            f"copyUser -f {first} -t {second} -u ann",
            f"copyAcl -f {first} -t {second} -s User:ann",
            f"listAcl -b {second}",
            f"deleteAcl -b {second} -s User:ann -r Topic:T",
            f"listAcl -b {second}",
            f"deleteUser -b {second} -u ann",
            f"listUser -b {second}",
        )
        for text in printed:
            print(text)
        assert "success" in printed[0]
        assert "The user is existed" in printed[1]
        assert "success" in printed[2] and "success" in printed[3] and "success" in printed[4]
        assert "changed" in printed[5] and "Normal" in printed[5] and "enable" in printed[5]
        assert "ann" in printed[6] and "root" in printed[6] and "inner" in printed[6]
        for listed in (printed[7], printed[10]):
            assert "Topic:T" in listed and "Deny" in listed and "10.0.0.0/8" in listed and "Group:G*" in listed
        assert "Topic:T" not in printed[12] and "Group:G*" in printed[12]
        assert "ann" not in printed[14] and "root" in printed[14]
    finally:
        for broker in brokers:
            broker.kill()


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
async def test_original_clients_sign_over_tls_by_our_name_server_and_broker(
    rocketmq: Java, tmp_path: Path, version: str
) -> None:
    java = rocketmq if version == "5.5.0" else old_clients(version)
    authority = Authority.make(tmp_path / "authority")
    made = authority.certify("broker")
    tls = {"tls.server.certPath": made.certificate, "tls.server.keyPath": made.key}
    names = NameServer("tally", tmp_path, None, tls)
    dial = {"tls.enable": "true", "tls.client.trustCertPath": authority.trust}
    topic, flags = f"T{secrets.token_hex(4)}", ("-Dtls.enable=true", "-Dtls.client.authServer=true")
    security = BrokerSecurity(access_key="root", secret_key="root-secret", tls_ca_file=authority.trust)
    try:
        names.spawn()
        await _listening(names.port)
        broker = Broker("tally", tmp_path, None, names.address, {**KEYS, **tls, **dial})
        try:
            broker.spawn()
            await _listening(broker.ports.broker)
            settings = BrokerClientSettings(security=security, topic_wait_s=20.0)
            async with topics(names.address, settings=settings) as mq:
                await mq.producer("P").send(topic, b"ours")
            trust = (*flags, f"-Dtls.client.trustCertPath={authority.trust}")
            assert await keyed_run(java, ROOT, names.address, topic, 20, *trust) in (
                "sent 20 came 20",
                "sent 20 came 21",
            )
            assert await keyed_run(java, ROOT, names.address, topic, 3) == "sent 0 refused"
        finally:
            broker.kill()
    finally:
        names.kill()


async def test_our_client_signs_at_an_original_broker_over_tls(rocketmq: Java, tmp_path: Path) -> None:
    """It registers with a name server of ours that takes both."""
    authority = Authority.make(tmp_path / "authority")
    made = authority.certify("broker")
    pkcs8 = _as_java_reads_it(made.key)
    properties = tmp_path / "tls.properties"
    properties.write_text(
        f"tls.test.mode.enable=false\ntls.server.keyPath={pkcs8}\ntls.server.certPath={made.certificate}\n"
    )
    flags = (*SMALL, f"-Dtls.config.file={properties}", "-Dtls.server.mode=enforcing", "-Dtls.enable=false")
    keys = {"tls.server.certPath": made.certificate, "tls.server.keyPath": made.key}
    names = NameServer("tally", tmp_path, None, {**keys, "tls.server.mode": "permissive"})
    security = BrokerSecurity(access_key="root", secret_key="root-secret", tls_ca_file=authority.trust)
    try:
        names.spawn()
        await _listening(names.port)
        settings = {**KEYS, **PROVIDERS, "authConfigPath": tmp_path / "auth"}
        broker = Broker("java", tmp_path, rocketmq, names.address, settings, flags=flags)
        try:
            broker.spawn()
            await _listening(broker.ports.broker)
            # The original registers within ten seconds after it listens; a send waits for half of its time.
            client = BrokerClientSettings(security=security, topic_wait_s=30.0, send_timeout_s=60.0)
            async with topics(names.address, settings=client) as mq:
                for number in range(20):
                    await mq.producer("P").send("T", f"m{number}".encode())
                bodies = set()
                async for message in mq.consumer("G", "T", start="first"):
                    bodies.add(message.body)
                    if len(bodies) == 20:
                        break
            for wrong in (replace(security, secret_key="wrong"), replace(security, tls_ca_file=None)):
                refused = BrokerClientSettings(security=wrong, topic_wait_s=1.0, send_retries=0)
                async with topics(names.address, settings=refused) as mq:
                    with pytest.raises(TallyError):
                        await mq.producer("P").send("T", b"never")
        finally:
            broker.kill()
    finally:
        names.kill()


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
async def test_original_clients_that_sign_send_and_consume_and_others_do_not(
    rocketmq: Java, folder: Path, house: House, version: str
) -> None:
    java = rocketmq if version == "5.5.0" else old_clients(version)
    broker = Broker("tally", folder, None, house.ns, KEYS)
    topic = f"T{secrets.token_hex(4)}"
    try:
        await house.start(broker)
        assert await keyed_run(java, ("root", "wrong"), house.ns, topic, 3) == "sent 0 refused"
        assert await keyed_run(java, ROOT, house.ns, topic, 50) == "sent 50 came 50"
    finally:
        broker.kill()
