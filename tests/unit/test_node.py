"""The processes of servers: their ready lines, signals, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.bookies import KEY, SpyDisk, adds, codes, read
from support.brokers import send_command
from support.waiting import until
from tallystick import node
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.implementation import in_use
from tallystick.errors import StorageError, UsageError
from tallystick.node import bookie_main, bookies_main, broker_main, name_server_main
from tallystick.rocketmq.wire.remoting import encode
from tallystick.runtime.instances import Instances
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.usefixtures("house_logger")  # some run a server's main in this process

# SIGHUP is heard, also where the tests themselves were started with nohup.
RUN = (
    "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); from tallystick import node; "
    "sys.exit(getattr(node, sys.argv[1])(sys.argv[2], {}))"
)

SEVERAL = """
import asyncio, sys
from tallystick import node
SERVES = '''
import pathlib, signal, sys
file = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (file.write_text("stopped"), sys.exit(0)))
print("ready", flush=True)
file.write_text("ready")
signal.pause()
'''
commands = [[sys.executable, "-c", code, sys.argv[1]] for code in (SERVES, "import signal; signal.pause()")]
start = lambda outside: node._instances(commands, None, (), outside)
sys.exit(node._main("bookie", lambda: (start, ()), None, ends_start=True))
"""


@pytest.fixture
async def config(tmp_path: Path) -> str:
    """Of a bookie in a new SQLite cluster."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    driver = await open_driver(uri)
    await driver.init_cluster()
    await driver.close()
    file = tmp_path / "bookie.toml"
    file.write_text(
        f'[bookie]\nmetadataServiceUri = "{uri}"\nbookieId = "b0"\nbookiePort = 0\n'
        f'journalDirectory = "{tmp_path}/journal"\nledgerDirectories = "{tmp_path}/ledgers"\nflushInterval = 1\n'
    )
    return str(file)


class Process:
    def __init__(self, config: str, main: str = "bookie_main") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, main, config], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().strip()

    def ask(self, request: bytes) -> int:
        """The code of the answer."""
        host, _, port = self.ready.partition("address=")[2].partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(request)
            data = connection.recv(4096)
        return codes(data)[0][1]

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.fixture
def processes(config: str) -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.mark.rule("P1")
async def test_p1_a_killed_process_comes_back_with_everything_at_once(config: str, processes: list[Process]) -> None:
    first = Process(config)
    processes.append(first)
    assert first.ready.startswith("ready bookie=b0 address=127.0.0.1:")
    assert first.ask(adds(1, [0])) == Code.OK
    assert first.ask(read(2, 0, KEY)) == Code.NO_ENTRY
    first.end(signal.SIGKILL)
    second = Process(config)
    processes.append(second)
    assert second.ask(read(1, 0)) == Code.OK
    assert second.ask(adds(2, [0])) == Code.FENCED
    code, errors = second.end(signal.SIGTERM)
    assert code == 0
    assert errors.count("flushInterval") == 1
    third = Process(config)
    processes.append(third)
    assert third.ask(read(1, 0)) == Code.OK
    assert third.end(signal.SIGINT)[0] == 0
    fourth = Process(config)
    processes.append(fourth)
    code, errors = fourth.end(signal.SIGHUP)  # its terminal was closed
    assert (code, "error" in errors) == (0, False)


def exit_code(config: str | None, overrides: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = bookie_main(config, overrides, io.StringIO())
    return code, capsys.readouterr().err


def test_exit_code_1_for_settings(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, errors = exit_code(config, {"journalSyncData": "false"}, capsys)
    assert (code, "journalSyncData" in errors) == (1, True)
    code, errors = exit_code(None, {}, capsys)
    assert (code, "metadataServiceUri is missing" in errors) == (1, True)


def test_exit_code_2_for_a_cookie(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ledgers" / "current").mkdir(parents=True)
    code, errors = exit_code(config, {}, capsys)
    assert (code, "InvalidCookie" in errors) == (2, True)


def test_exit_code_4_without_a_cluster(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, errors = exit_code(config, {"metadataServiceUri": f"sqlite://{tmp_path}/other.db"}, capsys)
    assert (code, "MetadataError" in errors) == (4, True)


def test_a_broker_and_a_name_server_as_processes(tmp_path: Path, processes: list[Process]) -> None:
    (tmp_path / "namesrv.conf").write_text("listenPort=0\nserverWorkerThreads=8\n")
    names = Process(str(tmp_path / "namesrv.conf"), "name_server_main")
    processes.append(names)
    address = names.ready.removeprefix("ready nameserver address=")
    assert address.startswith("127.0.0.1:")
    (tmp_path / "broker.conf").write_text(
        f"brokerName=b\nlistenPort=0\nnamesrvAddr={address}\nstorePathRootDir={tmp_path}/store\n"
        "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    )
    broker = Process(str(tmp_path / "broker.conf"), "broker_main")
    processes.append(broker)
    assert broker.ready.startswith("ready broker=b id=0 address=127.0.0.1:")
    assert " ha=127.0.0.1:" in broker.ready
    assert broker.end(signal.SIGTERM)[0] == 0
    code, errors = names.end(signal.SIGTERM)
    assert code == 0
    assert "settings change nothing here" in errors and "keys=serverWorkerThreads" in errors


def test_what_keeps_a_broker_or_a_name_server_from_starting_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert broker_main(None, {}, io.StringIO()) == 1
    assert "storePathRootDir is missing" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert name_server_main(None, {"listenPort": port}, io.StringIO()) == 1
    said = capsys.readouterr().err
    assert "already in use" in said and f"(host=127.0.0.1 port={port})" in said


def test_exit_code_5_for_a_broker_whose_disk_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, processes: list[Process]
) -> None:
    """The process ends by itself at the first write to the log that fails, and takes leave before."""
    failing: list[bool] = []

    def fail(action: str, path: str) -> None:
        if failing and action == "write" and "commitlog" in path:
            raise StorageError("cannot write: Input/output error", path=path)

    monkeypatch.setattr(
        node, "this_machine", lambda events, open_files: replace(this_machine(events), disk=SpyDisk(fail))
    )
    (tmp_path / "namesrv.conf").write_text("listenPort=0\n")
    names = Process(str(tmp_path / "namesrv.conf"), "name_server_main")
    processes.append(names)
    keys = {
        "storePathRootDir": f"{tmp_path}/store",
        "brokerName": "b",
        "listenPort": "0",
        "namesrvAddr": names.ready.removeprefix("ready nameserver address=").split()[0],
        "mappedFileSizeCommitLog": "1048576",
        "maxHashSlotNum": "100",
        "maxIndexNum": "400",
    }
    with ThreadPoolExecutor(1) as pool:

        class Ready(io.StringIO):
            def write(self, text: str) -> int:
                if "address=" in text:
                    failing.append(True)
                    pool.submit(send_one, int(text.partition("address=")[2].split()[0].rpartition(":")[2]))
                return super().write(text)

        assert broker_main(None, keys, Ready()) == 5
    said = capsys.readouterr().err
    assert "error: StorageError: cannot write: Input/output error" in said
    assert "commitlog" in said
    assert "broker unregistered" in names.end(signal.SIGTERM)[1]


def send_one(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(encode(send_command()))
        connection.recv(4096)


def test_events_are_lines_of_json_where_the_environment_asks(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_LOG_FORMAT", "json")
    code, errors = Process(config).end(signal.SIGTERM)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert code == 0
    assert [line["event"] for line in lines][:3] == ["server starts", "settings change nothing here", "cookie written"]
    assert lines[0]["codec"] == in_use()
    assert all(line["timestamp"].endswith("Z") and line["logger"] == "tallystick.bookie" for line in lines)


def test_a_wrong_level_is_a_wrong_setting(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLY_LOG_LEVEL", "loud")
    assert bookie_main(config, {}, io.StringIO()) == 1
    assert "TALLY_LOG_LEVEL" in capsys.readouterr().err


def test_a_server_whose_lines_nobody_reads_serves_and_stops(config: str) -> None:
    """Its stderr is a pipe that is full from the start."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "bookie_main", config], stdout=subprocess.PIPE, stderr=write, text=True
    )
    os.close(write)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready bookie=b0")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(read)


def test_a_server_whose_terminal_is_closed_before_its_ready_line_stops_as_ever(config: str) -> None:
    """With or without SIGHUP, which nohup keeps away: the ready line was an OSError, and the server was not stopped."""
    terminal, end = os.openpty()
    os.close(terminal)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "bookie_main", config], stdout=end, stderr=subprocess.PIPE, text=True
    )
    os.close(end)
    assert process.stderr is not None
    try:
        assert any("cookie written" in line for line in process.stderr)  # it hears signals by then
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, "Error" in errors) == (0, False), errors
    finally:
        process.kill()
        process.communicate()


def several(*words: str) -> tuple[list[str], int, str]:
    """Start two servers as one and stop them: who said that it is ready, the exit code, and their log."""
    command = [sys.executable, "-m", "tallystick", *words, "--instances=2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    return [line.split(" address=")[0].strip() for line in lines], process.returncode, errors


async def test_several_stop_while_one_of_them_does_not_come_to_its_start(tmp_path: Path) -> None:
    """Those that served went on until the last one was ready."""
    serving = tmp_path / "serving"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SEVERAL, str(serving))
    try:
        await until(serving.exists)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
        assert serving.read_text() == "stopped"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_several_bookies_are_started_and_stopped_as_one(config: str, tmp_path: Path) -> None:
    lines, code, log = several("bookie", "run", "--config", config)
    assert lines == ["ready bookie=b0-1", "ready bookie=b0-2", "ready instances=2 of=2"]
    assert code == 0, log
    assert "[tallystick.bookie.1]" in log and "[tallystick.bookie.2]" in log
    assert sorted(folder.name for folder in (tmp_path / "ledgers").iterdir()) == ["instance-1", "instance-2"]
    driver = await open_driver(f"sqlite://{tmp_path}/metadata.db")
    assert sorted(await driver.cookies()) == ["b0-1", "b0-2"]
    await driver.close()


def test_several_that_cannot_start_end_with_their_code(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert bookies_main(config, {"metadataServiceUri": "sqlite:///nowhere/m.db"}, 2) == 4
    assert "an instance ended" in capfd.readouterr().err
    assert bookies_main(config, {}, 65) == 1
    assert "--instances is a whole number from 1 to 64" in capfd.readouterr().err


def test_several_brokers_are_groups_of_their_own(tmp_path: Path) -> None:
    settings = ["--set=listenPort=0", f"--set=storePathRootDir={tmp_path}", "--set=brokerName=b"]
    lines, code, log = several("broker", "run", *settings)
    assert lines == ["ready broker=b-1 id=0", "ready broker=b-2 id=0", "ready instances=2 of=2"]
    assert code == 0, log
    assert (tmp_path / "instance-1" / "commitlog").is_dir() and (tmp_path / "instance-2" / "commitlog").is_dir()


def test_several_that_rejoin_do_so_once(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = list[tuple[Any, Any]]()

    async def start(commands: Any, *args: Any, once: Any) -> None:
        starts.append((commands, once))
        raise UsageError("that is all")

    monkeypatch.setattr(Instances, "start", start)
    for rejoin in (True, False):
        bookies_main(config, {}, 2, rejoin=rejoin)
    [(commands, once), (others, never)] = starts
    assert commands == others and list(once) == ["--rejoin"] and list(never) == []
    assert not any("--rejoin" in command for command in commands)
