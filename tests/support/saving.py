"""Brokers whose tables are saved when a test lets them be, and what makes something to save."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from support.brokers import Peer, pull_command
from tallystick.errors import DiskFull
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.headers import CreateTopicHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, RequestCode
from tallystick.runtime.disk import File, OsDisk


class GatedDisk(OsDisk):
    """Tables are written when they may be; others are not touched."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.full = False
        self.unfit = ""  # for this file there is no room either
        self.written: list[str] = []

    def open(self, path: str, **how: bool) -> File:
        if path.endswith(".json.new"):
            assert self.gate.wait(20), "nobody opened the gate"
            if self.full or (self.unfit and path.endswith(f"{self.unfit}.new")):
                raise DiskFull("no room", path=path)
            self.written.append(Path(path).name.removesuffix(".new"))
        return super().open(path, **how)

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()


def create(topic: str, queues: int = 2) -> Command:
    header = CreateTopicHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields())


def beat(count: int) -> Command:
    groups = tuple(ConsumerGroup(f"group-{number}") for number in range(count))
    return request(RequestCode.HEART_BEAT, {}, dialect.write(Heartbeat("client", consumers=groups)))


async def answered(peer: Peer, opaque: int) -> bool:
    """Whether it is, when the broker has handled all that was sent to it."""
    await peer.ask(pull_command("Nowhere", group="TOOLS_CONSUMER"))
    return opaque in peer._answers
