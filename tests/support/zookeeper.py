"""A real ZooKeeper server out of the jars that PySpark ships; needs Java, nothing else."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.ports import free_port

# All that the server loads; without snappy it listens and then drops every session.
JARS = ("zookeeper-[0-9]*.jar", "zookeeper-jute-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar")
SASL_JARS = (
    "netty-handler-4*.jar",
    "netty-common-4*.jar",
    "netty-buffer-4*.jar",
)  # with SASL it needs them
JAVA_OPTIONS = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PROGRAM = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
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


def classpath(*more: str) -> str:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    found = []
    for pattern in (*JARS, *more):
        jars = sorted(folder.glob(pattern))
        if not jars:
            raise FileNotFoundError(f"pyspark has no {pattern}")
        found.append(str(jars[-1]))
    return ":".join(found)


def jaas(file: Path, section: str, users: Mapping[str, str]) -> Path:
    """Write the users of a server (``Server``), or the one of a client (``Client``), as the originals read them."""
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    known = section == "Server"
    options = (
        f'user_{user}="{secret}"' if known else f'username="{user}" password="{secret}"'
        for user, secret in users.items()
    )
    file.write_text(f"{section} {{ {module} {' '.join(options)}; }};\n")
    file.chmod(0o600)
    return file


class ZooKeeperServer:
    """One standalone server on loopback; ``stop`` and ``start`` keep its data and port.

    ``users``: who may log in by SASL, with his secret; None: it knows no SASL.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tick_ms: int = 200,
        port: int | None = None,
        more: str = "",
        users: Mapping[str, str] | None = None,
        flags: tuple[str, ...] = (),
    ) -> None:
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
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()) + more)
        self._process: subprocess.Popen[bytes] | None = None
        self._flags, self._login = flags, tuple[str, ...]()
        if users is not None:
            self.know(users)

    def know(self, users: Mapping[str, str]) -> None:
        """Let these users log in by SASL, from the next start on."""
        self._login = (
            f"-Djava.security.auth.login.config={jaas(self._folder / 'jaas.conf', 'Server', users)}",
            "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.launch()
        self.wait_until_ready("standalone")

    def launch(self) -> None:
        jars = classpath(*(SASL_JARS if self._login else ()))
        command = ["java", *JAVA_OPTIONS, *self._flags, *self._login, "-cp", jars, PROGRAM]
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen([*command, str(self._config)], stdout=log, stderr=log)

    def wait_until_ready(self, *modes: str) -> None:
        """``modes``: what it may call itself then."""
        assert self._process is not None, "launch it first"
        deadline = time.monotonic() + START_S
        while not any(f"Mode: {mode}" in self.ask("srvr") for mode in modes):
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

    def clients(self) -> set[int]:
        """The ports at the far ends of its connections: one that a session has no more is closed."""
        return {int(port) for port in re.findall(r"^ /[^\[]*:(\d+)\[1\]", self.ask("cons"), re.MULTILINE)}

    def pause(self) -> None:
        assert self._process is not None, "launch it first"
        self._process.send_signal(signal.SIGSTOP)

    def revive(self) -> None:
        """Start it if it was stopped, and let it run if it was paused."""
        if self._process is None:
            self.start()
        else:
            self._process.send_signal(signal.SIGCONT)

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


class LaggingEnsemble:
    """Three servers, one of which hears its leader through a gate: ``hold`` makes it lag, ``release`` lets it catch up.

    ``leading`` is the address of a server that is up to date, ``lagging`` that of the other.
    """

    def __init__(self, folder: Path) -> None:
        ports = {number: (free_port(), free_port(), free_port()) for number in (1, 2, 3)}
        self._gates = {number: _Gate(ports[number][1]) for number in (2, 3)}
        self._servers = []
        for number, (client, _, _) in ports.items():
            home = folder / str(number)
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(str(number))
            seen = {peer: self._gates[peer].port if number == 1 and peer != 1 else ports[peer][1] for peer in ports}
            peers = "".join(f"server.{peer}=127.0.0.1:{seen[peer]}:{ports[peer][2]}\n" for peer in ports)
            self._servers.append(ZooKeeperServer(home, port=client, more=f"initLimit=50\nsyncLimit=100\n{peers}"))
        self.lagging, self.leading = self._servers[0].address, self._servers[2].address

    def start(self) -> None:
        """The two that may lead first, so that one of them does."""
        for server in reversed(self._servers):
            server.launch()
        for server in self._servers:
            server.wait_until_ready("leader", "follower")

    def hold(self) -> None:
        for gate in self._gates.values():
            gate.open.clear()

    def release(self) -> None:
        for gate in self._gates.values():
            gate.open.set()

    def stop(self) -> None:
        for server in self._servers:
            server.stop()
        self.release()
        for gate in self._gates.values():
            gate.close()


class _Gate:
    """A port before another one: what comes back from there passes while ``open`` is set."""

    def __init__(self, target: int) -> None:
        self._target, self.open = target, threading.Event()
        self.open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                threading.Thread(target=self._copy, args=(near, far, None), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near, self.open), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, gate: threading.Event | None) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(65536):
                if gate is not None:
                    gate.wait()
                target.sendall(data)
