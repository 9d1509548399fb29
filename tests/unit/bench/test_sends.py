"""Sends over many connections reach a broker, one in flight on each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sends import connections, send_over

from support.broker_peers import GET_MAX_OFFSET, ask
from support.waiting import until
from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.machine import this_machine

CONNECTIONS = 5


async def a_broker(folder: Path) -> Broker:
    store = StoreSettings(commit_log_file_bytes=4 << 20, consume_queue_file_units=1000, index=False)
    return await start_broker(BrokerSettings(str(folder), "b0", "c0", port=0, store=store), this_machine())


def test_every_connection_is_there_before_the_first_message_and_each_answer_counts(tmp_path: Path) -> None:
    async def work() -> tuple[int, dict[str, str]]:
        broker = await a_broker(tmp_path)
        address = "{}:{}".format(*broker.address)
        async with connections(address, CONNECTIONS) as clients:
            outcome = await send_over(clients, address, "Sent", b"body", 0.1)

        async def all_stored() -> bool:
            answer, _ = await ask(broker.address[1], GET_MAX_OFFSET, {"topic": "Sent", "queueId": "0"})
            return bool(answer["extFields"]["offset"] == outcome["count"])

        await until(all_stored)
        await broker.stop()
        return len(clients), outcome

    clients, outcome = asyncio.run(work())
    assert clients == CONNECTIONS <= int(outcome["count"])
    assert 0 < float(outcome["p50"]) <= float(outcome["p99"])


def test_a_message_that_is_refused_fails_the_round(tmp_path: Path) -> None:
    async def work() -> None:
        broker = await a_broker(tmp_path)
        address = "{}:{}".format(*broker.address)
        try:
            async with connections(address, 1) as clients:
                await send_over(clients, address, "no such name!", b"body", 0.1)
        finally:
            await broker.stop()

    with pytest.raises(RuntimeError, match="refused a message"):
        asyncio.run(work())
