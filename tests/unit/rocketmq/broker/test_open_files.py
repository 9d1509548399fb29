"""A whole broker that may open few files, with many topics that a client made: it serves, dies, and comes back."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
from pathlib import Path

from support.brokers import Peer, pull_command, send_command
from tallystick.rocketmq.wire.record import decode_messages
from tallystick.rocketmq.wire.values import PullFlag

LIMIT = 1024  # of most systems, unless somebody raised it
TOPICS = 1000  # each with a queue here, of those that a client makes: more files than the process may open
WAITING = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
RUN = "import sys; from tallystick.node import broker_main; sys.exit(broker_main(sys.argv[1], {}))"


class Process:
    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT)),
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()

    async def peer(self) -> Peer:
        host, _, port = self.ready.partition("address=")[2].split()[0].partition(":")
        return Peer(*await asyncio.open_connection(host, int(port)))

    @property
    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


async def test_a_thousand_topics_under_a_limit_of_1024_files(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(
        f"brokerName=b\nlistenPort=0\nhaListenPort=0\nstorePathRootDir={tmp_path}/store\n"
        "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    )
    names = [f"Topic{number}" for number in range(TOPICS)]
    first = Process(config)
    try:
        peer = await first.peer()
        for body in (b"one", b"two"):
            asked = [peer.send(send_command(name, body, properties=f"KEYS\x01{name}\x02")) for name in names]
            assert {(await peer.answer(opaque)).code for opaque in asked} == {0}
        assert await read(peer, names[0]) == [b"one", b"two"]  # so all of them are dispatched soon
        assert first.open_files < LIMIT // 2
        peer.writer.close()
    finally:
        first.end(signal.SIGKILL)
    second = Process(config)
    try:
        peer = await second.peer()
        for name in names:
            assert await read(peer, name) == [b"one", b"two"]
        asked = [peer.send(send_command(name, b"three")) for name in names]
        assert {(await peer.answer(opaque)).code for opaque in asked} == {0}
        assert await read(peer, names[-1], 3) == [b"one", b"two", b"three"]
        assert second.open_files < LIMIT // 2
        peer.writer.close()
    finally:
        code = second.end(signal.SIGTERM)
    assert code == 0


async def read(peer: Peer, topic: str, count: int = 2) -> list[bytes]:
    """So many messages; the pull waits for those that are not dispatched yet."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        answer = await peer.ask(pull_command(topic, offset=len(bodies), flags=WAITING))
        assert answer.code == 0, answer.remark
        bodies += [message.stored_body for message in decode_messages(answer.body)]
    return bodies
