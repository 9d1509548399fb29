"""Several servers as one service, by real processes."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.waiting import until
from tallystick.errors import TallyError, UsageError
from tallystick.runtime import instances
from tallystick.runtime.events import Event, Events
from tallystick.runtime.instance import Pages, require_count
from tallystick.runtime.instances import Instances
from tallystick.runtime.machine import this_machine

SERVER = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(sys.argv[2])))
print(f"ready number={os.environ['TALLY_INSTANCE']}", flush=True)
open(os.path.join(sys.argv[1], os.environ["TALLY_INSTANCE"]), "w").write(str(os.getpid()))
while True:
    signal.pause()
"""


# It notes how it was started; the first start is one that may be let in later, all others are ready, and killed.
NOTED = """
import os, sys
with open(sys.argv[1], "a") as file:
    file.write(" ".join(sys.argv[2:]) + "\\n")
    is_first = file.tell() < 10
if is_first:
    sys.exit(4)
print("ready", flush=True)
os.kill(os.getpid(), 9)
"""


def serves(folder: Path, code_when_stopped: int = 0) -> list[str]:
    return [sys.executable, "-c", SERVER, str(folder), str(code_when_stopped)]


def ends(code: int) -> list[str]:
    return [sys.executable, "-c", f"raise SystemExit({code})"]


class Group:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.started: list[Instances] = []

    async def start(self, *commands: list[str], pages: Pages | None = None, once: Sequence[str] = ()) -> Instances:
        outside = this_machine(Events(self.events.append))
        self.started.append(await Instances.start(commands, outside, pages, once=once))
        return self.started[-1]

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event.fields for event in self.events if event.kind == kind]


@pytest.fixture
async def group(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Group]:
    monkeypatch.setattr(instances, "FIRST_PAUSE_S", 0.01)
    group = Group()
    yield group
    for service in group.started:
        await service.stop()


async def process_of(folder: Path, number: int, other: int = 0) -> int:
    """The id of the process of an instance, once it is another."""
    file = folder / str(number)

    async def is_written() -> bool:
        return file.exists() and file.read_text() not in ("", str(other))

    await until(is_written)
    return int(file.read_text())


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def page(service: Instances, path: str) -> tuple[int, str]:
    host, _, port = service.ready.rpartition("http=")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


async def test_they_start_and_stop_together(group: Group, tmp_path: Path) -> None:
    service = await group.start(serves(tmp_path), serves(tmp_path))
    assert service.ready == "ready number=1\nready number=2\nready instances=2 of=2"
    processes = [await process_of(tmp_path, number) for number in (1, 2)]
    await service.stop()
    assert not any(map(runs, processes)) and not service.failure.done()
    assert group.events == []


async def test_what_is_for_one_start_is_left_out_once_that_is_done(group: Group, tmp_path: Path) -> None:
    """A bookie that rejoins puts all of its ledgers in limbo: one that was killed a week later has its own disk."""
    starts = tmp_path / "starts"
    await group.start([sys.executable, "-c", NOTED, str(starts)], serves(tmp_path), once=["--once"])

    async def is_started_again() -> bool:
        return len(starts.read_text().splitlines()) >= 4

    await until(is_started_again)
    assert starts.read_text().splitlines()[:4] == ["--once", "--once", "", ""]


async def test_who_is_killed_is_started_again(group: Group, tmp_path: Path) -> None:
    await group.start(serves(tmp_path), serves(tmp_path))
    killed, other = [await process_of(tmp_path, number) for number in (1, 2)]
    os.kill(killed, signal.SIGKILL)
    await process_of(tmp_path, 1, killed)

    async def is_told() -> bool:
        return bool(group.told("instance serves again"))

    await until(is_told)
    assert group.told("instance starts again") == [{"instance": 1, "exit_code": -9, "pause_s": 0.01}]
    assert group.told("instance serves again") == [{"instance": 1, "starts": 2}]
    assert await process_of(tmp_path, 2) == other and runs(other)


async def test_one_whose_disk_failed_leaves_the_others_as_they_are(group: Group, tmp_path: Path) -> None:
    service = await group.start(ends(5), serves(tmp_path), pages=Pages("127.0.0.1", 0))
    assert service.ready.startswith("ready number=2\nready instances=1 of=2 http=127.0.0.1:")
    assert group.told("instance ended") == [{"instance": 1, "exit_code": 5}]
    status, body = await page(service, "/health")
    health = json.loads(body)
    assert (status, health["healthy"]) == (503, False)
    assert [(row["instance"], row["state"], row["exit_code"]) for row in health["instances"]] == [
        (1, "ended", 5),
        (2, "serves", None),
    ]
    _, metrics = await page(service, "/metrics")
    assert 'tallystick_instance_serves{instance="1"} 0.0' in metrics
    assert 'tallystick_instance_serves{instance="2"} 1.0' in metrics
    await service.stop()
    ended = service.failure.result()
    assert isinstance(ended, TallyError) and ended.fields == {"instance": 1, "exit_code": 5}, "the exit code says it"


async def test_all_that_serve_are_healthy(group: Group, tmp_path: Path) -> None:
    service = await group.start(serves(tmp_path), pages=Pages("127.0.0.1", 0))
    assert (await page(service, "/health"))[0] == 200


async def test_a_service_of_which_nothing_runs_has_ended(group: Group, tmp_path: Path) -> None:
    service = await group.start(ends(2), serves(tmp_path))
    os.kill(await process_of(tmp_path, 2), signal.SIGTERM)
    ended = await asyncio.wait_for(service.failure, 60)
    assert isinstance(ended, TallyError) and ended.fields["exit_code"] == 2


@pytest.mark.parametrize("code", [1, 4])
async def test_a_service_of_which_nothing_starts_ends_with_its_code(group: Group, code: int) -> None:
    with pytest.raises(TallyError) as caught:
        await group.start(ends(code), ends(code))
    assert caught.value.fields["exit_code"] == code


async def test_one_of_which_no_process_can_be_made_leaves_the_others_and_is_tried_again(
    group: Group, tmp_path: Path
) -> None:
    """A start waited for it for ever; where all served, they ended."""
    command = tmp_path / "command"
    async with asyncio.timeout(60):
        service = await group.start([str(command)], serves(tmp_path))
    assert service.ready == "ready number=2\nready instances=1 of=2"
    command.write_text(f"#!/bin/sh\nexec {shlex.join(serves(tmp_path))}\n")
    command.chmod(0o755)
    await process_of(tmp_path, 1)
    assert not service.failure.done()
    assert group.told("instance not made")[0] == {"instance": 1, "reason": "No such file or directory"}


async def test_where_no_process_can_be_made_there_is_no_service(group: Group, tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(TallyError) as caught:
            await group.start([str(tmp_path / "command")])
    assert caught.value.fields["exit_code"] == instances.CANNOT_START


async def test_a_fault_while_they_stop_is_not_passed_over(group: Group, tmp_path: Path) -> None:
    service = await group.start(serves(tmp_path, code_when_stopped=5), serves(tmp_path))
    await process_of(tmp_path, 1)
    await service.stop()
    ended = service.failure.result()
    assert isinstance(ended, TallyError) and ended.fields == {"instance": 1, "exit_code": 5}


async def test_they_end_with_a_service_that_is_killed(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from tallystick.runtime.instances import Instances
from tallystick.runtime.machine import this_machine
async def main():
    await Instances.start([sys.argv[1:]], this_machine(), None)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *serves(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert service.stdout is not None
    assert await service.stdout.readline() == b"ready\n"
    process = await process_of(tmp_path, 1)
    service.kill()
    await service.communicate()

    async def has_ended() -> bool:
        return not runs(process)

    await until(has_ended)


async def test_a_port_of_another_is_named(group: Group, tmp_path: Path) -> None:
    first = await group.start(serves(tmp_path), pages=Pages("127.0.0.1", 0))
    port = int(first.ready.rpartition(":")[2])
    with pytest.raises(UsageError, match="cannot listen") as caught:
        await group.start(serves(tmp_path), pages=Pages("127.0.0.1", port))
    assert str(port) in str(caught.value)


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_count_that_nobody_means_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="--instances"):
        require_count(count)
