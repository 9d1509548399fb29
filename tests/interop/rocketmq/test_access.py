"""Keys: the original's tools and clients, of 5.5.0 and 4.9.7, on our broker; our client on an original broker."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from support.broker_peers import Broker
from support.houses import House
from support.java import Java
from support.keyed import keyed_admin, keyed_run, old_clients

ROOT = ("root", "root-secret")
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}


@pytest.fixture
async def house(new_house: Callable[[str], Coroutine[Any, Any, House]]) -> AsyncIterator[House]:
    house = await new_house("tally")
    yield house
    await house.forget()


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
