"""How soon a broker is ready again that was killed under load: many queues, each with many messages.

One process fills a store and goes on sending to all queues, with checkpoints as a broker makes them, until it is
killed; then ``tally broker run`` starts on that store, with tables of all topics and of a group's offsets. Ready is
when it says so, counted from the start of its process. Queues that are to be built again are not measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NoReturn

import command

from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, TOPICS, ConfigFiles
from tallystick.rocketmq.broker.offsets import SavedOffsets
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import PutRequest
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import TopicTable
from tallystick.rocketmq.wire.values import DataVersion, TopicConfig
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events

QUEUES_OF_A_TOPIC = 8
BATCH = 50  # messages of one request
PUT_REQUESTS = 2000  # of one put
BODY = bytes(100)
HOST = StoreSettings().store_host


def fill(directory: str, queues: int, messages: int) -> NoReturn:
    """Never returns: it sends until it is killed, or whoever started it. Says "full" when every queue has so many
    messages."""
    clock, parent = SystemClock(), os.getppid()
    store = MessageStore.open(OsDisk(), directory, StoreSettings(), clock, Events())
    places = [(f"Topic{number // QUEUES_OF_A_TOPIC}", number % QUEUES_OF_A_TOPIC) for number in range(queues)]

    def upkeep() -> None:
        while True:
            time.sleep(1)
            if os.getppid() != parent:
                os._exit(1)  # it would fill the disk
            store.flush()
            store.maintain(clock.wall_ms())

    threading.Thread(target=upkeep, daemon=True).start()
    count = 0
    while True:
        batch = min(BATCH, messages) if count < messages else 1
        contents = tuple((0, BODY, b"") for _ in range(batch))
        for first in range(0, queues, PUT_REQUESTS):
            store.put(
                [
                    PutRequest(topic, queue_id, contents, clock.wall_ms(), HOST)
                    for topic, queue_id in places[first : first + PUT_REQUESTS]
                ]
            )
            while store.reput_offset < store.end:
                store.reput()
        count += batch
        if count - batch < messages <= count:
            print("full", flush=True)


def tables(directory: str, queues: int) -> None:
    """What a broker with these queues has beside them: all topics, and where one group is in each queue."""
    files = ConfigFiles(OsDisk(), directory)
    names = [f"Topic{number}" for number in range(-(-queues // QUEUES_OF_A_TOPIC))]
    configs = {name: TopicConfig(name, QUEUES_OF_A_TOPIC, QUEUES_OF_A_TOPIC) for name in names}
    offsets = {f"{name}@group": dict.fromkeys(range(QUEUES_OF_A_TOPIC), 1) for name in names}
    files.save(TOPICS, dialect.write(TopicTable(DataVersion(), configs)))
    files.save(CONSUMER_OFFSETS, dialect.write(SavedOffsets(DataVersion(), offsets)))


def measure(directory: str, queues: int, messages: int, rounds: int, load_s: float) -> command.Results:
    fill = [sys.executable, str(Path(__file__).resolve()), "--fill", directory, "--queues", str(queues)]
    serve = [sys.executable, "-m", "tallystick", "broker", "run"]
    for key, value in (
        ("storePathRootDir", directory),
        ("brokerName", "bench"),
        ("listenPort", 0),
        ("haListenPort", 0),
    ):
        serve += ["--set", f"{key}={value}"]
    tables(directory, queues)
    starts = []
    for number in range(rounds):
        _until([*fill, "--messages", str(messages if not number else 1)], "full", load_s)
        starts.append(_until(serve, "ready", 0))
    return {
        "queues": queues,
        "messages_each": messages,
        "seconds_to_ready": [round(start[0], 2) for start in starts],
        "median": round(sorted(starts)[rounds // 2][0], 2),
        "cpu_seconds": [round(start[1], 2) for start in starts],
    }


def _until(words: list[str], word: str, then_s: float) -> tuple[float, float]:
    """Run it until it says so, and kill it some time later; how long it took to say it, and the CPU of its whole life,
    in seconds."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            took = time.perf_counter() - began
            time.sleep(then_s)
        finally:
            process.kill()
    assert line.startswith(word), f"it said {line!r}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--queues", type=int, default=20_000, help="how many there are (20000)")
    parser.add_argument("--messages", type=int, default=1000, help="in each of them (1000): 4 GB for 20,000 queues")
    parser.add_argument("--rounds", type=int, default=3, help="kills and starts (3)")
    parser.add_argument("--load-seconds", type=float, default=5.0, help="sends until each kill, in seconds (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        fill(arguments.fill, arguments.queues, arguments.messages)

    def measured() -> command.Results:
        directory = tempfile.mkdtemp(prefix="tally-restart-")
        try:
            return measure(directory, arguments.queues, arguments.messages, arguments.rounds, arguments.load_seconds)
        finally:
            shutil.rmtree(directory)

    return command.report_of(parser, measured, command.as_json, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
