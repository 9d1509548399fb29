"""A real ZooKeeper server out of the jars that PySpark ships; needs Java, nothing else."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from support.ports import free_port

# All that the server loads; without snappy it listens and then drops every session.
JARS = ("zookeeper-[0-9]*.jar", "zookeeper-jute-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar")
JAVA_OPTIONS = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_S = 30.0


def missing() -> str | None:
    """Why there can be no server here; None when there can."""
    if shutil.which("java") is None:
        return "there is no java on the PATH"
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark, whose jars have the server, is not installed"
    try:
        classpath()
    except FileNotFoundError as error:
        return str(error)
    return None


def classpath() -> str:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    found = []
    for pattern in JARS:
        jars = sorted(folder.glob(pattern))
        if not jars:
            raise FileNotFoundError(f"pyspark has no {pattern}")
        found.append(str(jars[-1]))
    return ":".join(found)


class ZooKeeperServer:
    """One standalone server on loopback; ``stop`` and ``start`` keep its data and port."""

    def __init__(self, folder: Path, *, tick_ms: int = 200, port: int | None = None) -> None:
        self.port, self._folder = port or free_port(), folder
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "zoo.cfg"
        settings = {
            "tickTime": tick_ms,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "maxClientCnxns": 0,
            "minSessionTimeout": 400,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = ["java", *JAVA_OPTIONS, "-cp", classpath(), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen([*command, str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while "Mode: standalone" not in self.ask("srvr"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = (self._folder / "zookeeper.log").read_text(errors="replace")
                raise RuntimeError(f"ZooKeeper did not start:\n{log_text}")
            time.sleep(0.05)

    def ask(self, command: str) -> str:
        """The answer to a four-letter command; empty while nobody listens."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection,
        ):
            connection.sendall(command.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        return ""

    def stop(self) -> None:
        """kill -9: what it acknowledged is on its disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
