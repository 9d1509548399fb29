"""How soon a broker is ready again that was killed under load: many queues, each with many messages.

One process fills a store and goes on sending to all queues, with checkpoints as a broker makes them, until it is
killed; then another one starts a broker on that store. Ready is when it listens, counted from the start of its process.
Queues that are to be built again are another matter, and not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tallystick.rocketmq.broker.broker import start_broker
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import Draft
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events
from tallystick.runtime.network import TcpNetwork
from tallystick.runtime.outside import Outside

QUEUES_OF_A_TOPIC = 8
BATCH = 50  # messages of one draft
DRAFTS = 2000  # of one put
BODY = bytes(100)
HOST = StoreSettings().store_host


def fill(directory: str, queues: int, messages: int) -> None:
    """Never returns: it sends until it is killed. Says "full" when every queue has so many messages."""
    clock = SystemClock()
    store = MessageStore.open(OsDisk(), directory, StoreSettings(), clock, Events())
    places = [(f"Topic{number // QUEUES_OF_A_TOPIC}", number % QUEUES_OF_A_TOPIC) for number in range(queues)]

    def upkeep() -> None:
        while True:
            time.sleep(1)
            store.flush()
            store.maintain(clock.wall_ms())

    threading.Thread(target=upkeep, daemon=True).start()
    sent = 0
    while True:
        batch = min(BATCH, messages) if sent < messages else 1
        contents = tuple((0, BODY, b"") for _ in range(batch))
        for first in range(0, queues, DRAFTS):
            store.put([
                Draft(topic, queue_id, contents, clock.wall_ms(), HOST)
                for topic, queue_id in places[first : first + DRAFTS]
            ])  # fmt: skip
            while store.reput_offset < store.end:
                store.reput()
        sent += batch
        if sent - batch < messages <= sent:
            print("full", flush=True)


async def serve(directory: str) -> None:
    outside = Outside(TcpNetwork(), OsDisk(), SystemClock(), Events())
    broker = await start_broker(BrokerSettings(directory, "bench", port=0), outside)
    print("ready", flush=True)
    await broker.stop()


def measure(queues: int, messages: int, rounds: int, load_s: float) -> dict[str, object]:
    directory = tempfile.mkdtemp(prefix="tally-restart-")
    try:
        seconds = []
        for _ in range(rounds):
            _until([*_SELF, "--fill", directory, "--queues", str(queues), "--messages", str(messages)], "full", load_s)
            seconds.append(round(_until([*_SELF, "--serve", directory], "ready", 0), 2))
        return {"queues": queues, "messages_each": messages, "seconds_to_ready": seconds, "median": sorted(seconds)[
            len(seconds) // 2
        ]}  # fmt: skip
    finally:
        shutil.rmtree(directory)


_SELF = (sys.executable, str(Path(__file__).resolve()))


def _until(command: list[str], word: str, then_s: float) -> float:
    """Run it until it says so, and kill it some time later; how long it took to say it."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        took = time.perf_counter() - began
        assert said == word, f"it said {said!r}"
        time.sleep(then_s)
        process.kill()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=20_000)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load-seconds", type=float, default=5.0)
    parser.add_argument("--json")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.fill:
        fill(asked.fill, asked.queues, asked.messages)
    elif asked.serve:
        asyncio.run(serve(asked.serve))
    else:
        result = measure(asked.queues, asked.messages, asked.rounds, asked.load_seconds)
        print(json.dumps(result, indent=2))
        if asked.json:
            Path(asked.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
