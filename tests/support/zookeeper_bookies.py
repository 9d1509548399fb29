"""Bookies of ours whose metadata is on a real ZooKeeper, and sessions on it that end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.peers import Bookie
from support.zookeeper import ZooKeeperServer
from tallystick.bookkeeper.metadata.open import open_driver

BOOKIES = 4
LONGEST_SESSION_S = 4.0  # twenty ticks of the server
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class ZooKeeperBookies:
    server: ZooKeeperServer
    uri: str

    def expire(self, pid: int) -> None:
        """Stop a process until ZooKeeper has ended its sessions; then it goes on."""
        connections = _local_ports(pid) & self.server.clients()
        assert connections, f"{pid} has no session"
        os.kill(pid, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while self.server.clients() & connections:
                assert time.monotonic() < deadline, f"a session of {pid} does not end"
                time.sleep(0.1)
        finally:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ZooKeeperBookies]:
    server = ZooKeeperServer(folder / "zookeeper")
    server.start()
    uri = f"zk+hierarchical://{server.address}/ledgers"
    bookies: list[Bookie] = []

    async def start() -> None:
        driver = await open_driver(uri)
        await driver.init_cluster()
        await driver.close()
        bookies.extend(Bookie.ours(uri, folder, id=f"bookie-{number}") for number in range(BOOKIES))
        await asyncio.gather(*(bookie.start() for bookie in bookies))

    try:
        asyncio.run(start())
        yield ZooKeeperBookies(server, uri)
    finally:
        for bookie in bookies:
            bookie.kill()
        server.stop()


def _local_ports(pid: int) -> set[int]:
    """The ports of a process's own ends of its TCP connections."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.update(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[9] in sockets}
