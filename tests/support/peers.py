"""Processes of a mixed cluster: ZooKeeper, bookies, clients, each the original's or ours, behind the same few methods.

Every peer has a folder with its log; none outlives ``kill``, and none the process that started it (of ours: where
there is ``setpriv``).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote_plus

from support.java import SMALL, Java
from support.ports import free_port

START_TIMEOUT_S = 180.0
PAUSE_TIMEOUT_S = 30.0
_ABSENT_LEDGER = 0x7FFF_FFF0
_READ = struct.Struct(">IIqq")  # length, version 2 and opcode READ, ledger, entry
_READ_ANSWER = struct.Struct(">IIiqq")  # length, header, code, ledger, entry


def tally(*words: str) -> list[str]:
    """A command of ours that ends with the process that started it, as the originals' wrappers do, also by SIGKILL."""
    leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*leash, sys.executable, "-m", "tallystick", *words]


def with_codec(command: list[str], codec: str) -> list[str]:
    """A command of ours with the codec that it is to use, ``python`` or ``compiled``; "": as it is installed."""
    return ["env", f"TALLY_CODEC={codec}", *command] if codec else command


def _stands_still(process_id: int) -> bool:
    try:
        threads = [path.read_text() for path in Path(f"/proc/{process_id}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # one ended just now
        return False
    return {thread.rpartition(")")[2].split()[0] for thread in threads} == {"T"}


class Peer:
    """One process with a log; the base of all others."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        self.command, self.folder, self.name = command, folder, name
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def spawn(self, *, pipe_out: bool = False) -> subprocess.Popen[bytes]:
        """Start; standard error goes to the log, and standard output too unless it is read by us."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{self.name}.log").open("ab") as log:
            out: IO[bytes] | int = subprocess.PIPE if pipe_out else log
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=out, stderr=log, cwd=self.folder
            )
        return self.process

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pause(self) -> None:
        """Every thread stands still when this returns; on a busy machine the signal alone takes its time."""
        self.signal(signal.SIGSTOP)
        assert self.process is not None
        deadline = time.monotonic() + PAUSE_TIMEOUT_S
        while not _stands_still(self.process.pid):
            assert time.monotonic() < deadline, f"{self.process.pid} did not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a power switch would: SIGKILL, and wait until the kernel has cleaned up."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def failed(self, why: str) -> RuntimeError:
        log = (self.folder / f"{self.name}.log").read_text(errors="replace")
        return RuntimeError(f"{self.name}: {why}\n{log[-3000:]}")


class Server(Peer):
    """A peer that answers requests."""

    async def probe(self) -> None:
        """Ask for anything. Raises OSError, IncompleteReadError, TimeoutError while it does not answer."""
        raise NotImplementedError

    async def start(self) -> float:
        """Start and wait until it answers a request, which is later than when it listens; the seconds it took."""
        process = self.spawn()
        started = time.monotonic()
        while time.monotonic() < started + START_TIMEOUT_S:
            if process.poll() is not None:
                raise self.failed(f"ended with {process.returncode}")
            if await self.answers():
                return time.monotonic() - started
            await asyncio.sleep(0.02)
        raise self.failed(f"no answer in {START_TIMEOUT_S} s")

    async def answers(self) -> bool:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await self.probe()
            return True
        return False

    def leave(self, seconds: float = 30.0) -> float:
        """Ask it to stop (SIGTERM) and wait until it has; the seconds it took."""
        assert self.process is not None
        self.process.terminate()
        started = time.monotonic()
        self.process.wait(seconds)
        self.kill()  # only closes what is left of it here
        return time.monotonic() - started


class Driver(Peer):
    """A client in a process of its own, driven by lines (tests/interop/java/Lines.java). Not for two tasks at once."""

    kind: str

    @classmethod
    async def original(
        cls,
        java: Java,
        uri: str,
        folder: Path,
        settings: Mapping[str, object],
        *,
        flags: tuple[str, ...] = SMALL,
        name: str = "java",
    ) -> Driver:
        arguments = [f"{key}={value}" for key, value in settings.items()]
        return await cls._start("java", java.command("Driver", uri, *arguments, flags=flags), folder, name)

    @classmethod
    async def ours(
        cls,
        uri: str,
        folder: Path,
        *,
        program: str = "tally_driver.py",
        name: str = "tally",
        wire: str = "",
        codec: str = "",
    ) -> Driver:
        command = with_codec([sys.executable, str(Path(__file__).with_name(program)), uri], codec)
        return await cls._start("tally", [*command, wire] if wire else command, folder, name)

    @classmethod
    async def _start(cls, kind: str, command: list[str], folder: Path, name: str) -> Driver:
        driver = cls(command, folder, f"{name}-{time.monotonic_ns()}")
        driver.kind = kind
        driver.spawn(pipe_out=True)
        await driver._line()
        return driver

    async def ask(self, verb: str, **values: object) -> dict[str, str]:
        """One request, its answer's values. Raises PeerError with the original's code for what failed there."""
        assert self.process is not None and self.process.stdin is not None
        words = [verb, *(f"{key}={quote(str(value), safe='')}" for key, value in values.items())]
        self.process.stdin.write((" ".join(words) + "\n").encode())
        self.process.stdin.flush()
        status, *pairs = (await self._line()).split(" ")
        answer = {key: unquote_plus(value) for key, _, value in (pair.partition("=") for pair in pairs if pair)}
        if status != "ok":
            raise PeerError(int(answer["code"]), f"{self.name}: {verb}: {answer['message']}")
        return answer

    async def _line(self) -> str:
        assert self.process is not None and self.process.stdout is not None
        line = await asyncio.get_running_loop().run_in_executor(None, self.process.stdout.readline)
        if not line:
            raise self.failed("ended")
        return line.decode().rstrip("\n")


class PeerError(Exception):
    """A request failed in the other process; ``code`` is the original client's number for the reason."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


class ZooKeeper(Driver):
    """The original's coordination service; its address is known after ``start``."""

    address: str

    @classmethod
    async def start(cls, java: Java, folder: Path) -> ZooKeeper:
        # A tick of 200 ms allows sessions of 0.4 to 4 s, so that a killed bookie's registration goes soon.
        started = await cls._start(
            "java", java.command("ZooKeeperPeer", str(folder / "data"), "200"), folder, "zookeeper"
        )
        assert isinstance(started, cls)
        started.address = f"127.0.0.1:{(await started.ask('port'))['port']}"
        return started

    async def cluster(self, name: str) -> str:
        """Make a new cluster under its own root; its URI."""
        uri = f"zk+hierarchical://{self.address}/{name}"
        await self.ask("format", uri=uri)
        return uri


def bookie_configuration(uri: str, port: int, folder: Path, changes: Mapping[str, object]) -> str:
    """A ``bk_server.conf`` for one bookie on the loopback interface; both kinds read it."""
    values: dict[str, object] = {
        "metadataServiceUri": uri,
        "bookiePort": port,
        "listeningInterface": "lo",
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "journalDirectories": folder / "journal",
        "ledgerDirectories": folder / "ledgers",
        "diskUsageThreshold": "0.99",
        "httpServerEnabled": "false",
        "zkTimeout": 4000,
        **changes,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


# Keys that only the original has: one machine is no place for preallocated gigabytes and eight threads a pool.
JAVA_KEYS = {
    "journalMaxBackups": 0,
    "journalMaxSizeMB": 64,
    "journalPreAllocSizeMB": 4,
    "logSizeLimit": 128 * 1024 * 1024,
    "skipListSizeLimit": 16 * 1024 * 1024,
    "numAddWorkerThreads": 1,
    "numReadWorkerThreads": 1,
    "numHighPriorityWorkerThreads": 1,
    "numJournalCallbackThreads": 1,
    "serverNumIOThreads": 1,
    "journalFlushWhenQueueEmpty": "true",
}


class Bookie(Server):
    """One storage node of either kind. ``id`` is what ledger metadata calls it."""

    def __init__(self, kind: str, command: list[str], folder: Path, port: int, id: str) -> None:
        super().__init__(command, folder, f"{kind}-bookie-{port}")
        self.kind, self.port, self.id = kind, port, id

    @classmethod
    def original(
        cls,
        java: Java,
        uri: str,
        folder: Path,
        *,
        flags: tuple[str, ...] = SMALL,
        settings: Mapping[str, object] = JAVA_KEYS,
    ) -> Bookie:
        """Not started yet; its folder is ``folder`` plus the port."""
        port = free_port()
        home = folder / f"java-{port}"
        return cls(
            "java", java.command("BookiePeer", str(home / "bookie.conf"), flags=flags), home, port, f"127.0.0.1:{port}"
        )._configured(bookie_configuration(uri, port, home, settings))

    @classmethod
    def ours(
        cls,
        uri: str,
        folder: Path,
        *,
        id: str = "",
        settings: Mapping[str, object] | None = None,
        codec: str = "",
    ) -> Bookie:
        """As ``original``; with an id of its own if one is given, else named by its address as the original is."""
        port = free_port()
        home = folder / f"tally-{port}"
        command = with_codec(tally("bookie", "run", "--config", str(home / "bookie.conf")), codec)
        if id:
            command += ["--set", f"bookieId={id}"]
        return cls("tally", command, home, port, id or f"127.0.0.1:{port}")._configured(
            bookie_configuration(uri, port, home, settings or {})
        )

    def _configured(self, configuration: str) -> Bookie:
        self.folder.mkdir(parents=True)
        (self.folder / "bookie.conf").write_text(configuration)
        return self

    async def probe(self) -> None:
        await self.read_code(_ABSENT_LEDGER, 0)

    async def read_code(self, ledger: int, entry: int) -> int:
        """The code of a plain version 2 READ from hand-made bytes: 0 for an entry that is stored here."""
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(_READ.pack(20, 0x0202_0000, ledger, entry))
                code: int = _READ_ANSWER.unpack(await reader.readexactly(_READ_ANSWER.size))[2]
                return code
            finally:
                writer.close()


class LogPeer(Driver):
    """A client of DistributedLog over the ledgers of a cluster."""

    @classmethod
    async def open(cls, java: Java, uri: str, folder: Path, *, first: bool = False) -> LogPeer:
        address, _, root = uri.removeprefix("zk+hierarchical://").partition("/")
        command = java.command("LogPeer", address, f"/{root}", "first" if first else "later", flags=SMALL)
        peer = await cls._start("java", command, folder, "logs")
        assert isinstance(peer, cls)
        return peer
