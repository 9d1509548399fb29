"""A master and a slave of their own, and the slave that becomes the master by hand (docs/ha.md)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.broker_peers import GET_ROUTE, ask
from support.peers import tally
from support.topics import BROKER, QUEUES, make_topic, send, slave_serves
from support.waiting import until
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.rocketmq.wire.record import Message

PATIENCE_S = 60.0
SLAVE = f"{BROKER}-s1"


class Promotion:
    """``promote`` once; then the slave's copy is the master."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name_server(self) -> str:
        state = self.cluster.load()
        assert state is not None and state.name_server is not None
        return state.name_server

    def has_topic(self, topic: str) -> None:
        """Make a topic, and wait until the slave has it."""
        later = f"{topic}-later"  # which has something to serve
        for each in (topic, later):
            make_topic(self.name_server, each)
        with sync.topics(self.name_server) as mq:
            send(mq, later, [Message(later, b"x")] * QUEUES)
        asyncio.run(slave_serves(self.cluster, later))

    def promote(self, topic: str, *, wait: bool) -> None:
        """The master is lost for good; the slave is stopped, and its copy started as the master.

        ``wait``: until the name server sends clients of the topic there.
        """
        old = asyncio.run(self._master(topic))
        self.cluster.kill([BROKER])
        self.cluster.kill([SLAVE])
        home = Path(self.cluster.directory)
        shutil.copytree(home / SLAVE / "data", home / "promoted")
        settings = (f"storePathRootDir={home / 'promoted'}", "brokerId=0", "brokerRole=ASYNC_MASTER")
        words = [word for setting in settings for word in ("--set", setting)]
        self.process = subprocess.Popen(tally("broker", "run", "--config", str(home / SLAVE / "broker.toml"), *words))
        if wait:
            asyncio.run(self._is_replaced(topic, old))

    async def _is_replaced(self, topic: str, old: str | None) -> None:
        async def replaced() -> bool:
            return await self._master(topic) not in (None, old)

        await until(replaced, seconds=PATIENCE_S, pause=0.1)

    async def _master(self, topic: str) -> str | None:
        """Its address, as the name server has it."""
        _, route = await ask(int(self.name_server.rpartition(":")[2]), GET_ROUTE, {"topic": topic})
        return next(iter(re.findall(r'[{,]"?0"?:"([^"]+)"', route.decode())), None)


@contextlib.contextmanager
def own_pair(folder: Path) -> Iterator[Promotion]:
    cluster = DevCluster(str(folder))
    cluster.up(brokers="1+1")
    promotion = Promotion(cluster)
    try:
        yield promotion
    finally:
        if promotion.process is not None:
            promotion.process.kill()
            promotion.process.wait()
        cluster.down()
