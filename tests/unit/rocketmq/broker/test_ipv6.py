"""A broker, a name server and a client that know one another by IPv6 addresses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tallystick
from support.brokers import benched
from support.ipv6 import needs_ipv6
from support.machines import machine
from support.waiting import until
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings


@needs_ipv6
@pytest.mark.real_time
async def test_a_message_goes_through_a_broker_at_an_ipv6_address(tmp_path: Path) -> None:
    name_server = NameServer(NameServerSettings(bind_host="::1", port=0), machine())
    host, port = await name_server.start()
    names = f"[{host}]:{port}"
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(host="::1", name_servers=(names,)))
        await until(lambda: name_server.routes.topic_count > 0)
        assert broker.address[0] == "::1"
        async with asyncio.timeout(60), tallystick.topics(names) as topics:
            result = await topics.producer("P").send("TopicTest", b"body")
            async with topics.consumer("G", "TopicTest") as consumer:
                async for message in consumer:
                    assert (message.body, message.offset) == (b"body", result.queue_offset)
                    break
    await name_server.close()
